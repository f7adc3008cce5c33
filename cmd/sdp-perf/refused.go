package main

import (
	"errors"

	"github.com/spf13/pflag"
)

const (
	noUDP   = "SDP is a stream of bytes, so there is no test of datagrams"
	noSCTP  = "SDP, TCP and Unix sockets are measured, and no SCTP"
	noTCPs  = "the system's TCP is measured as it is, and SDP has no such option"
	noLogin = "clients have no passwords: who may enter the fabric, or reach the port, may measure"
)

// refused are flags that iperf3 has and this tool has not, with the reason, or what to use.
var refused = map[string]string{
	"u": noUDP, "udp": noUDP, "udp-counters-64bit": noUDP, "dont-fragment": noUDP,
	"sctp": noSCTP, "X": noSCTP, "xbind": noSCTP, "nstreams": noSCTP,
	"C": noTCPs, "congestion": noTCPs, "M": noTCPs, "set-mss": noTCPs, "S": noTCPs, "tos": noTCPs, "dscp": noTCPs, "L": noTCPs,
	"flowlabel": noTCPs, "fq-rate": noTCPs, "snd-timeout": noTCPs, "m": noTCPs, "mptcp": noTCPs,
	"N": "Go's connections never delay small writes", "no-delay": "Go's connections never delay small writes",
	"username": noLogin, "rsa-public-key-path": noLogin, "rsa-private-key-path": noLogin, "authorized-users-path": noLogin,
	"time-skew-threshold": noLogin, "use-pkcs1-padding": noLogin,
	"A": "start it by taskset -c N", "affinity": "start it by taskset -c N",
	"bind-dev": "SDP needs no network device; with --transport tcp the route chooses it", "4": "name an address of that kind: -c 127.0.0.1",
	"version4": "name an address of that kind: -c 127.0.0.1", "6": "name an address of that kind: -c ::1", "version6": "name an address of that kind: -c ::1",
	"Z": "SDP copies once on each side, and that is what is measured", "zerocopy": "SDP copies once on each side, and that is what is measured",
	"F": "what is sent is made up; a file goes by sdp-proxy or a program of yours", "file": "what is sent is made up; a file goes by sdp-proxy or a program of yours",
	"T": "each line would have it: use sed", "title": "each line would have it: use sed", "extra-data": "keep it beside the output of -J",
	"I": "the shell has it: echo $!", "pidfile": "the shell has it: echo $!", "D": "use systemd-run, or a shell's &", "daemon": "use systemd-run, or a shell's &",
	"v": "use --version", "V": "all there is to say is printed; -J has more", "verbose": "all there is to say is printed; -J has more",
	"d": "use strace", "debug": "use strace",
	"cport": "the client's port is picked", "forceflush": "each line is written at once", "timestamps": "use ts of moreutils, or --json-stream",
	"get-server-output": "the server's figures are in the client's output", "repeating-payload": "what is sent makes no difference",
	"pacing-timer": "-b waits for each message", "server-bitrate-limit": "a server limits how many runs it carries out, and not their rate",
	"idle-timeout": "a server serves others beside a client that says nothing", "rcv-timeout": "start it by timeout N",
}

// refusal returns a flag of iperf3's that an error of parsing is about, and why it is refused.
func refusal(err error) (flag, why string, ok bool) {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return "", "", false
	}
	flag, dashes := unknown.GetSpecifiedName(), "--"
	if unknown.GetSpecifiedShortnames() != "" {
		dashes = "-"
	}
	why, ok = refused[flag]
	return dashes + flag, why, ok
}
