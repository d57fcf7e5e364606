// Command load has both ends of each measurement: a fake broker that answers at once, and clients that time each
// answer. It uses the standard library only, and Linux only (epoll, writev, /proc).
//
// It must be cheaper than what it measures, because on two cores its own work would be part of the figure. So the
// broker is one epoll loop, the timing client uses blocking sockets, and neither copies a large frame.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

var modes = map[string]struct {
	about string
	run   func(flags *flag.FlagSet, arguments []string) error
}{
	"server":   {"a fake broker: answers every request at once with filler", server},
	"client":   {"times Produce-keyed requests, a fixed number of them in flight", client},
	"innocent": {"times a client's small requests and telemetry beside an attack", innocent},
	"attack":   {"attacks from its own source address: floods, slow clients, bombs", attack},
	"push":     {"pairs of GetTelemetrySubscriptions and PushTelemetry (KIP-714)", push},
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]].run == nil {
		fmt.Fprintln(os.Stderr, "usage: load server|client|push|innocent|attack [flags]   (load MODE -h lists a mode's flags)")
		for _, name := range []string{"server", "client", "push", "innocent", "attack"} {
			fmt.Fprintf(os.Stderr, "  %-8s %s\n", name, modes[name].about)
		}
		os.Exit(2)
	}
	name := os.Args[1]
	if err := modes[name].run(flag.NewFlagSet("load "+name, flag.ExitOnError), os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "load %s: %v\n", name, err)
		os.Exit(1)
	}
}

// report prints one line of JSON.
func report(value any) error { return json.NewEncoder(os.Stdout).Encode(value) }
