// Command franz-client is a franz-go producer or consumer that runs until SIGTERM and then closes its
// client, which lets it push its telemetry a last time. Its arguments and its JSON lines on standard output
// are those of every client of the testbed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	closeWithin = 10 * time.Second
	statusEvery = time.Second
	valueBytes  = 100
)

type properties map[string]string

func (p properties) String() string { return "" }

func (p properties) Set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found {
		return fmt.Errorf("%q: write it as key=value", text)
	}
	p[key] = value
	return nil
}

// options says in franz-go's words what it has of librdkafka's properties; another property is an error, not a no-op.
func (p properties) options() ([]kgo.Opt, error) {
	var options []kgo.Opt
	for key, value := range p {
		switch key {
		case "security.protocol":
			if value != "PLAINTEXT" && value != "SASL_PLAINTEXT" {
				return nil, fmt.Errorf("security.protocol=%s: this client has PLAINTEXT and SASL_PLAINTEXT", value)
			}
		case "sasl.username", "sasl.password": // belong to sasl.mechanism
		case "sasl.mechanism":
			user, password := p["sasl.username"], p["sasl.password"]
			switch value {
			case "PLAIN":
				options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
			case "SCRAM-SHA-256":
				options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
			default:
				return nil, fmt.Errorf("sasl.mechanism=%s: this client has PLAIN and SCRAM-SHA-256", value)
			}
		case "enable.metrics.push":
			if value == "false" {
				options = append(options, kgo.DisableClientMetrics())
			}
		case "group.instance.id":
			options = append(options, kgo.InstanceID(value))
		case "client.rack":
			options = append(options, kgo.Rack(value))
		default:
			return nil, fmt.Errorf("this client has no property %s", key)
		}
	}
	return options, nil
}

func say(event string, fields map[string]any) {
	fields["event"] = event
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err) // the fields are strings and numbers
	}
	fmt.Println(string(line))
}

type counter struct{ records, errors atomic.Int64 }

func (c *counter) fields() map[string]any {
	return map[string]any{"records": c.records.Load(), "errors": c.errors.Load()}
}

func (c *counter) failed(err error) {
	c.errors.Add(1)
	say("error", map[string]any{"message": err.Error()})
}

func (c *counter) report(ctx context.Context) {
	ticker := time.NewTicker(statusEvery)
	defer ticker.Stop()
	for {
		say("counts", c.fields())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func produce(ctx context.Context, client *kgo.Client, topic string, rate float64, count *counter) error {
	ticker := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer ticker.Stop()
	value := make([]byte, valueBytes)
	for {
		select {
		case <-ctx.Done():
			flush, cancel := context.WithTimeout(context.Background(), closeWithin)
			defer cancel()
			return client.Flush(flush)
		case <-ticker.C:
		}
		client.Produce(context.Background(), &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				count.failed(err)
			} else {
				count.records.Add(1)
			}
		})
	}
}

func consume(ctx context.Context, client *kgo.Client, count *counter) {
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				count.failed(err)
			}
		})
		count.records.Add(int64(fetches.NumRecords()))
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/twmb/franz-go" {
				return module.Version
			}
		}
	}
	return "unknown"
}

func run() error {
	extra := properties{}
	mode := flag.String("mode", "", "producer or consumer")
	bootstrap := flag.String("bootstrap", "", "host:port of a broker")
	topic := flag.String("topic", "", "topic to write to or read from")
	clientID := flag.String("client-id", "", "client id")
	group := flag.String("group", "", "a consumer's group")
	rate := flag.Float64("rate", 10, "records a second that a producer sends")
	flag.Var(extra, "property", "further client property, key=value; may be repeated")
	flag.Parse()

	options, err := extra.options()
	if err != nil {
		return err
	}
	options = append(options, kgo.SeedBrokers(*bootstrap), kgo.ClientID(*clientID), kgo.AllowAutoTopicCreation())
	if *mode == "consumer" {
		options = append(options, kgo.ConsumerGroup(*group), kgo.ConsumeTopics(*topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	say("started", map[string]any{"mode": *mode, "version": version()})
	var count counter
	go count.report(ctx)
	switch *mode {
	case "producer":
		err = produce(ctx, client, *topic, *rate, &count)
	case "consumer":
		consume(ctx, client, &count)
	default:
		err = fmt.Errorf("--mode %q: choose producer or consumer", *mode)
	}
	client.Close()
	if err != nil {
		return err
	}
	say("stopped", count.fields())
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "franz-client:", err)
		os.Exit(1)
	}
}
