package perf

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testReport returns a report with what a real one can have: three transports, one
// of them unsteady, and a test that has percentiles beside one that has none.
func testReport() *Report {
	p := Plan{
		RoundTripSize: 64, OneWaySize: 64 << 10,
		Rounds: 3, Connections: 1, Duration: 300 * time.Millisecond,
	}
	micro := time.Microsecond
	var targets []*target
	add := func(network string, roundTrips, oneWay []float64, samples ...time.Duration) {
		targets = append(targets, &target{
			Endpoint: Endpoint{Network: network},
			tests: map[Test]*series{
				RoundTrip: {network, roundTrips, samples},
				OneWay:    {network, oneWay, nil},
			},
		})
	}
	add("sdp", []float64{0.66, 0.61, 0.71}, []float64{12, 18.25, 15}, 2*micro, 600, 650)
	add("tcp", []float64{9.5, 60, 9.996}, []float64{5, 6.5, 6}, 9*micro, 10*micro, 64*micro)
	add("unix", []float64{8.5, 8, 9}, []float64{7, 6, 8}, 9*micro, 8*micro, 120*micro)
	r := p.report(targets, Verified{32 << 20, []string{"sdp", "tcp", "unix"}}, p.Rounds)
	r.Host = Host{CPUs: 2, GOMAXPROCS: 2, Go: "go1.26.0", OS: "linux", Arch: "amd64", Kernel: "6.18.44"}
	return r
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, testReport().Table(&b))
	compareGolden(t, "table.golden", b.Bytes())
}

func TestTableOfOneTransportHasNoRatios(t *testing.T) {
	r := testReport()
	for i := range r.Tests {
		r.Tests[i].Results = r.Tests[i].Results[:1]
		r.Tests[i].Results[0].TimesFasterThan = nil
	}
	r.Verified.Transports = []string{"sdp"}
	r.Rounds = 1
	var b bytes.Buffer
	require.NoError(t, r.Table(&b))
	compareGolden(t, "table-one.golden", b.Bytes())
}

func TestJSON(t *testing.T) {
	b, err := json.MarshalIndent(testReport(), "", "  ")
	require.NoError(t, err)
	compareGolden(t, "report.golden.json", append(b, '\n'))
}

func TestSizeText(t *testing.T) {
	for n, want := range map[int]string{
		0: "0 B", 1: "1 B", 64: "64 B", 1000: "1000 B", 1024: "1 KiB", 1536: "1536 B",
		64 << 10: "64 KiB", 3 << 20: "3 MiB", 1 << 30: "1 GiB",
	} {
		assert.Equal(t, want, SizeText(n))
	}
}

func TestNumbersHaveDigitsThatCount(t *testing.T) {
	for v, want := range map[float64]string{
		0.00123: "0.0012", 0.096: "0.10", 0.612: "0.61", 9.994: "9.99", 9.996: "10.0", 99.94: "99.9", 99.96: "100", 1234.5: "1234",
	} {
		assert.Equal(t, want, Number(v))
	}
}
