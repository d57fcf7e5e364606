// Command franz-client is a franz-go producer or consumer that runs until SIGTERM and then closes its
// client, which lets it push its telemetry a last time. Its arguments and its JSON lines on standard output
// are those of every client of the testbed.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	closeWithin = 10 * time.Second
	statusEvery = time.Second
	valueBytes  = 100
)

type properties map[string]string

func readProperties(file string) (properties, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := properties{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		p[key] = value
	}
	return p, nil
}

// tls is the configuration for SSL and SASL_SSL.
func (p properties) tls() (*tls.Config, error) {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	ca, err := os.ReadFile(p["ssl.ca.location"])
	if err != nil {
		return nil, err
	}
	if !config.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("ssl.ca.location=%s: no certificate in it", p["ssl.ca.location"])
	}
	if chain := p["ssl.certificate.location"]; chain != "" {
		certificate, err := tls.LoadX509KeyPair(chain, p["ssl.key.location"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

func (p properties) mechanism() (sasl.Mechanism, error) {
	user, password := p["sasl.username"], p["sasl.password"]
	scramAuth := scram.Auth{User: user, Pass: password, IsToken: p["sasl.delegation.token"] == "true"}
	switch name := p["sasl.mechanism"]; name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism(), nil
	case "SCRAM-SHA-256":
		return scramAuth.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scramAuth.AsSha512Mechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: p["sasl.oauthbearer.token"]}.AsMechanism(), nil
	default:
		return nil, fmt.Errorf("sasl.mechanism=%s: this client does not have it", name)
	}
}

// options says in franz-go's words what it has of librdkafka's properties; another property is an error, not a no-op.
func (p properties) options() ([]kgo.Opt, error) {
	var options []kgo.Opt
	for key, value := range p {
		switch key {
		case "security.protocol":
			if strings.HasSuffix(value, "SSL") {
				config, err := p.tls()
				if err != nil {
					return nil, err
				}
				options = append(options, kgo.DialTLSConfig(config))
			}
		case "ssl.ca.location", "ssl.certificate.location", "ssl.key.location": // belong to security.protocol
		case "sasl.username", "sasl.password", "sasl.delegation.token", "sasl.oauthbearer.token": // belong to sasl.mechanism
		case "sasl.mechanism":
			mechanism, err := p.mechanism()
			if err != nil {
				return nil, err
			}
			options = append(options, kgo.SASL(mechanism))
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

func produce(ctx context.Context, client *kgo.Client, topic string, rate float64, left int, count *counter) error {
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
		if left == 0 {
			ticker.Stop()
			continue
		}
		left--
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
	mode := flag.String("mode", "", "producer or consumer")
	bootstrap := flag.String("bootstrap", "", "host:port of a broker, or several with commas between")
	topic := flag.String("topic", "", "topic to write to or read from")
	clientID := flag.String("client-id", "", "client id")
	group := flag.String("group", "", "a consumer's group")
	rate := flag.Float64("rate", 10, "records a second that a producer sends")
	records := flag.Int("count", -1, "records that a producer sends in all; below 0: without end")
	file := flag.String("properties", "", "file with further client properties, a key=value on each line")
	flag.Parse()

	extra, err := readProperties(*file)
	if err != nil {
		return err
	}
	options, err := extra.options()
	if err != nil {
		return err
	}
	options = append(options, kgo.SeedBrokers(strings.Split(*bootstrap, ",")...), kgo.ClientID(*clientID),
		kgo.AllowAutoTopicCreation())
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
		err = produce(ctx, client, *topic, *rate, *records, &count)
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
