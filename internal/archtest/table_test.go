package archtest

const module = "github.com/ntbnet/ntbnet"

// thirdParty are the modules of others that may be imported. Users of the transport
// download only the first.
var thirdParty = []struct {
	module string
	where  string // in words, for the message
	ok     func(f file) bool
}{
	{"golang.org/x/sys", "anywhere", func(file) bool { return true }},
	{"github.com/spf13/pflag", "in cmd and internal/flags only", func(f file) bool {
		return within(f.dir, "cmd") || within(f.dir, "internal/flags")
	}},
	{"github.com/HdrHistogram/hdrhistogram-go", "in internal/perf/meter and internal/selftest only", func(f file) bool {
		return within(f.dir, "internal/perf/meter") || within(f.dir, "internal/selftest")
	}},
	{"github.com/pires/go-proxyproto", "in internal/proxy only", func(f file) bool { return within(f.dir, "internal/proxy") }},
	{"go.yaml.in/yaml/v3", "in internal/proxy only", func(f file) bool { return within(f.dir, "internal/proxy") }},
	{"github.com/vishvananda/netlink", "in internal/tun only", func(f file) bool { return within(f.dir, "internal/tun") }},
	{"golang.org/x/time", "in internal/proxy only", func(f file) bool { return within(f.dir, "internal/proxy") }},
	{"github.com/coreos/go-systemd/v22", "in cmd/sdp-proxy only", func(f file) bool { return within(f.dir, "cmd/sdp-proxy") }},
	{"github.com/ncruces/go-strftime", "in cmd/sdp-perf only", func(f file) bool { return within(f.dir, "cmd/sdp-perf") }},
	{"golang.org/x/net", "in tests only", file.isTest},
	{"github.com/stretchr/testify", "in tests only", file.isTest},
}
