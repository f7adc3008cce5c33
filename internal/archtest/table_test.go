package archtest

const module = "github.com/ntbnet/ntbnet"

// public in a row stands for every package that is not below internal or cmd.
const public = "(public)"

// table names every package of the module, by its folder, and the packages of
// the module that its code may import directly; its tests may import anything.
// A row may be there before its package is.
//
// The picture, imports going down only:
//
//	cmd/sdp-perf   cmd/sdp-proxy   integration   cmd/shmemrun (internal/launch, internal/fabric)
//	       └───────────┬──┴───────────┘        │
//	                 sdp                     shmem
//	             ┌────┴────┐                   │
//	           dial      listen                │
//	             └────┬────┘                   │
//	               bounce                      │
//	             ┌────┴────┐            internal/fabric
//	         flowctl      ring ────────────────┘
//	             └────┬────┘
//	                 ntb
//	  ntb/ntbmem  ntb/ntbshm  ntb/ntbivshmem  ntb/ntbfault  ntb/ntbtest
var table = map[string][]string{
	"cmd/sdp-perf": {
		public, "internal/fabric",
		"internal/perf", "internal/perf/bench", "internal/perf/hops", "internal/perf/limits",
		"internal/perf/pgas", "internal/perf/plot",
	},
	"cmd/sdp-proxy": {public, "internal/proxy"},
	"cmd/shmemrun":  {"internal/fabric", "internal/launch"},
	"integration":   {public},

	// A command, which compares suites that it links to sdp itself.
	"integration/others": {"internal/fabric"},

	"internal/perf":        {},
	"internal/perf/hops":   {"internal/perf"},
	"internal/perf/limits": {"internal/perf", "ntb"},
	"internal/perf/pgas":   {"internal/perf", "shmem"},
	"internal/perf/plot":   {},
	"internal/perf/bench":  {"internal/perf", "internal/perf/limits", "internal/perf/plot"},
	"internal/proxy":       {"sdp", "internal/fabric", "ntb"},

	"sdp":          {"internal/lock", "dial", "listen", "bounce", "ring", "internal/fabric", "internal/hello", "internal/inetdiag"},
	"shmem":        {"internal/lock", "sdp", "internal/fabric", "internal/launch", "internal/membarrier", "ntb"},
	"shmem/mplite": {"shmem"},

	"dial":           {"internal/lock", "bounce", "ring", "internal/hello"},
	"listen":         {"internal/lock", "bounce", "ring", "internal/hello"},
	"internal/hello": {},

	"bounce":  {"internal/lock", "ring", "flowctl", "ntb"},
	"ring":    {"internal/lock", "flowctl", "ntb"},
	"flowctl": {},

	// The only package besides the commands that names backends.
	"internal/fabric": {
		"internal/lock", "ring", "ntb", "ntb/ntbmem", "ntb/ntbshm", "ntb/ntbivshmem", "ntb/ntbfault", "ntb/ntbdma",
	},

	"ntb":            {"internal/lock"},
	"ntb/ntbmem":     {"internal/lock", "ntb"},
	"ntb/ntbshm":     {"internal/lock", "ntb", "internal/membarrier"},
	"ntb/ntbivshmem": {"ntb"},
	"ntb/ntbfault":   {"ntb"},
	"ntb/ntbdma":     {"ntb"},
	"ntb/ntbtest":    {"ntb"},

	"internal/archtest":   {},
	"internal/inetdiag":   {},
	"internal/fabrictest": {"internal/fabric", "ntb"},
	"internal/leak":       {},
	"internal/litmus":     {},
	"internal/lock":       {},
	"internal/membarrier": {},
	"internal/launch":     {},
	"internal/recorder":   {"ntb", "internal/hello"},
}

// thirdParty are the modules of others that may be imported at all. What users
// of the transport download is the first alone.
var thirdParty = []struct {
	module string
	where  string // in words, for the message
	ok     func(f file) bool
}{
	{"golang.org/x/sys", "anywhere", func(file) bool { return true }},
	{"github.com/spf13/pflag", "in cmd only", func(f file) bool { return within(f.dir, "cmd") }},
	{"golang.org/x/net", "in tests only", file.isTest},
	{"github.com/stretchr/testify", "in tests only", file.isTest},
}
