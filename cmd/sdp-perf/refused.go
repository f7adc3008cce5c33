package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// refused are flags that iperf3 has and this tool has not, each with the reason, or with what to use.
var refused = []struct{ flags, why string }{
	{"u udp udp-counters-64bit dont-fragment", "SDP is a stream of bytes, so there is no test of datagrams"},
	{"sctp X xbind nstreams", "SCTP is not measured"},
	{"C congestion M set-mss S tos dscp L flowlabel fq-rate snd-timeout m mptcp", "the system's TCP is measured as it is, and SDP has no such option"},
	{"N no-delay", "Go's connections never delay small writes"},
	{"username rsa-public-key-path rsa-private-key-path authorized-users-path time-skew-threshold use-pkcs1-padding",
		"clients have no passwords: who may enter the fabric, or reach the port, may measure"},
	{"A affinity", "start it by taskset -c N"},
	{"bind-dev", "SDP needs no network device; with --transport tcp the route chooses it"},
	{"Z zerocopy", "SDP copies once on each side, and that is what is measured"},
	{"F file", "what is sent is made up; a file goes by sdp-proxy or a program of yours"},
	{"T title", "each line would have it: use sed"},
	{"extra-data", "keep it beside the output of -J"},
	{"I pidfile", "the shell has it: echo $!"},
	{"v", "use --version"},
	{"forceflush", "each line is written at once"},
	{"repeating-payload", "what is sent makes no difference"},
	{"pacing-timer", "-b waits for each message"},
	{"server-bitrate-limit", "a server limits how many runs it carries out, and not their rate"},
	{"idle-timeout", "a server serves others beside a client that says nothing"},
	{"rcv-timeout", "start it by timeout N"},
}

// refusal returns an error for a flag of iperf3's that is refused, in place of that of parsing.
func refusal(err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		name := unknown.GetSpecifiedName()
		for _, r := range refused {
			if slices.Contains(strings.Fields(r.flags), name) {
				return badInputf("%s%s of iperf3: %s", "--"[:min(len(name), 2)], name, r.why)
			}
		}
	}
	return badInputf("%w (see sdp-perf --help)", err)
}
