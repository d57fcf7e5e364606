// Command load is the other two ends of every measurement: a fake broker that answers at once, and clients
// that time each answer. Standard library only, Linux only (epoll, writev, /proc).
//
// It must stay cheaper than what it measures: on two cores its own work would otherwise be the figure. So the
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
	"idle":     {"opens connections, sends one ApiVersions on each, and holds them", idle},
	"innocent": {"times a client's small requests and telemetry beside an attack", innocent},
	"attack":   {"does harm from a source address of its own: floods, slow clients, bombs", attack},
	"push":     {"pairs of GetTelemetrySubscriptions and PushTelemetry (KIP-714)", push},
}

func main() {
	if len(os.Args) < 2 || modes[os.Args[1]].run == nil {
		fmt.Fprintln(os.Stderr, "usage: load server|client|idle|push|innocent|attack [flags]   (load MODE -h lists a mode's flags)")
		for _, name := range []string{"server", "client", "idle", "push", "innocent", "attack"} {
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
