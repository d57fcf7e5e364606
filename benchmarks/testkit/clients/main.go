// Command clients is a producer of a Go library that --library names, with the arguments of the testbed's
// clients. It runs until SIGTERM and then closes; librdkafka's binding can be a consumer too.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	segmentio "github.com/segmentio/kafka-go"
)

var (
	library   = flag.String("library", "", "sarama, kafka-go or confluent-kafka-go")
	mode      = flag.String("mode", "", "producer or consumer")
	bootstrap = flag.String("bootstrap", "", "host:port, or several with commas between")
	topic     = flag.String("topic", "", "topic to write to or read from")
	clientID  = flag.String("client-id", "", "client id")
	group     = flag.String("group", "", "a consumer's group")
	rate      = flag.Float64("rate", 10, "records a second")
	_         = flag.Int("count", -1, "not used: without end")
	_         = flag.String("properties", "", "not used")
)

// client sends a record, and closes.
type client struct {
	send  func(context.Context) error
	close func() error
}

func newSarama() (client, error) {
	config := sarama.NewConfig()
	config.ClientID = *clientID
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(strings.Split(*bootstrap, ","), config)
	if err != nil {
		return client{}, err
	}
	send := func(context.Context) error {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: *topic, Value: sarama.StringEncoder("value")})
		return err
	}
	return client{send, producer.Close}, nil
}

func newKafkaGo() (client, error) {
	writer := &segmentio.Writer{
		Addr:         segmentio.TCP(strings.Split(*bootstrap, ",")...),
		Topic:        *topic,
		BatchTimeout: 10 * time.Millisecond,
		Transport:    &segmentio.Transport{ClientID: *clientID},
	}
	send := func(ctx context.Context) error {
		return writer.WriteMessages(ctx, segmentio.Message{Value: []byte("value")})
	}
	return client{send, writer.Close}, nil
}

func newConfluent() (client, error) {
	config := kafka.ConfigMap{"bootstrap.servers": *bootstrap, "client.id": *clientID}
	if *mode == "consumer" {
		config["group.id"] = *group
		consumer, err := kafka.NewConsumer(&config)
		if err != nil {
			return client{}, err
		}
		receive := func(context.Context) error {
			consumer.Poll(100)
			return nil
		}
		return client{receive, consumer.Close}, consumer.Subscribe(*topic, nil)
	}
	producer, err := kafka.NewProducer(&config)
	if err != nil {
		return client{}, err
	}
	go func() {
		for range producer.Events() {
		}
	}()
	partition := kafka.TopicPartition{Topic: topic, Partition: kafka.PartitionAny}
	send := func(context.Context) error {
		return producer.Produce(&kafka.Message{TopicPartition: partition, Value: []byte("value")}, nil)
	}
	end := func() error {
		producer.Flush(10_000)
		producer.Close()
		return nil
	}
	return client{send, end}, nil
}

func run() error {
	flag.Parse()
	start := map[string]func() (client, error){
		"sarama": newSarama, "kafka-go": newKafkaGo, "confluent-kafka-go": newConfluent,
	}[*library]
	if start == nil {
		return fmt.Errorf("--library %q: unknown", *library)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := start()
	if err != nil {
		return err
	}
	ticker := time.NewTicker(time.Duration(float64(time.Second) / *rate))
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := client.send(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "clients:", err)
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return client.close()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "clients:", err)
		os.Exit(1)
	}
}
