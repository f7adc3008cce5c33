package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/sdp"
)

// times returns a distribution of 1 to n µs, each once.
func times(n int) *meter.Times {
	t := &meter.Times{}
	for i := range n {
		t.Add(time.Duration(i+1) * time.Microsecond)
	}
	return t
}

// result returns a run of two streams for 2 s.
func result(test string, reverse, bidir bool) *meter.Result {
	r := &meter.Result{
		Params:    meter.Params{Test: test, Streams: 1, Size: 1000, Time: 2 * time.Second, Reverse: reverse, Bidir: bidir},
		Transport: "sdp", Started: time.Unix(1e9, 0), Connected: [][2]string{{"localhost:1", "localhost:2"}},
		Here:  &meter.Side{Took: 2 * time.Second, CPU: meter.CPU{User: time.Second, System: time.Second / 2}, Times: *times(1000), Paths: &sdp.Stats{InlineBytes: 5, Doorbells: 7}},
		There: &meter.Side{Took: 2 * time.Second},
	}
	add := func(sends bool) {
		id := len(r.Here.Streams) + 1
		r.Here.Streams = append(r.Here.Streams, meter.Stream{ID: id, Sends: sends, Bytes: 1e9, Ops: 1e6, Took: 2 * time.Second})
		r.There.Streams = append(r.There.Streams, meter.Stream{ID: id, Sends: !sends, Bytes: 9e8, Ops: 9e5, Took: 2 * time.Second})
	}
	add(!reverse)
	if bidir {
		add(false)
	}
	return r
}

// A server's sums are what it has received, or with -R sent, as iperf3's are. It does not know what the client counted. It
// has accepted the client's connection.
func TestJSONOfAServer(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		r := result(meter.Bandwidth, reverse, false)
		r.Here, r.There, r.Remote = r.There, nil, "[::1]:40000"
		var b bytes.Buffer
		text := Reporter{W: &b, JSON: true}
		text.Start(r)
		text.Interval(r, meter.Interval{End: time.Second, Streams: r.Here.Streams})
		require.NoError(t, text.End(r, nil, io.Discard))
		type sum struct {
			Bytes  float64
			Sender bool
		}
		var got struct {
			Start     map[string]any
			Intervals []struct{ Sum sum }
			End       struct {
				Sent     sum `json:"sum_sent"`
				Received sum `json:"sum_received"`
			}
		}
		require.NoError(t, json.Unmarshal(b.Bytes(), &got))
		assert.Equal(t, map[string]any{"host": "::1", "port": 40000.0}, got.Start["accepted_connection"])
		assert.NotContains(t, got.Start, "connecting_to")
		assert.Equal(t, sum{9e8, reverse}, got.Intervals[0].Sum)
		want := [2]sum{{0, false}, {9e8, false}}
		if reverse {
			want = [2]sum{{9e8, true}, {0, true}}
		}
		assert.Equal(t, want, [2]sum{got.End.Sent, got.End.Received})
	}
}

func TestTextOfARun(t *testing.T) {
	for _, c := range []struct {
		r    *meter.Result
		want []string
	}{
		{result(meter.Bandwidth, false, false), []string{
			"[  1]   0.00-2.00   sec     954 MBytes    4.00 Gbits/sec  sender\n",
			"[  1]   0.00-2.00   sec     858 MBytes    3.60 Gbits/sec  receiver\n",
			"CPU here:  75.0 % (50.0 % user, 25.0 % system), 1.50 s/GB\n",
			"SDP here:  bytes inline 5, MMIO 0, DMA 0; doorbells 7; parks 0 read, 0 write\n",
		}},
		{result(meter.Latency, false, false), []string{
			"[  1]   0.00-2.00   sec     1000000       500 K/sec       2.00 us\n",
			"Round trip, us: 1000 times, min 1.00, mean 5", "p50 500 p90 900 p99 990 p99.9 9", ", 1.50 us/op\n",
		}},
	} {
		var b strings.Builder
		text := Reporter{W: &b}
		text.Start(c.r)
		text.Interval(c.r, meter.Interval{End: time.Second, Streams: c.r.Here.Streams})
		require.NoError(t, text.End(c.r, errors.New("interrupt"), io.Discard))
		for _, want := range append(c.want, "Ended early, 2.00 of 2 s measured: interrupt\n") {
			assert.Contains(t, b.String(), want)
		}
		for line := range strings.Lines(b.String()) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line), 81, line)
		}
	}
}

func TestFormats(t *testing.T) {
	for f, want := range map[Format]string{0: "1.00 Gbits/sec", 'k': "1000000 Kbits/sec", 'm': "1000 Mbits/sec", 'g': "1.00 Gbits/sec", 'K': "122070 KBytes/sec", 'M': "119 MBytes/sec", 'T': "0.00011 TBytes/sec"} {
		assert.Equal(t, want, f.Rate(125e6), string(f))
	}
	assert.Equal(t, "1.00 KBytes", Bytes(1024))
	assert.Equal(t, "12.3", Number(12.34))
}

func TestSumsOfEachDirection(t *testing.T) {
	for _, c := range []struct {
		reverse, bidir bool
		sent, received uint64
	}{{false, false, 1e9, 9e8}, {true, false, 9e8, 1e9}, {false, true, 1e9, 9e8}} {
		r := result(meter.Bandwidth, c.reverse, c.bidir)
		e := endOf(r)
		of := func(key string) object {
			o, _ := e[key].(object)
			return o
		}
		assert.Equal(t, c.sent, of("sum_sent")["bytes"])
		assert.Equal(t, c.received, of("sum_received")["bytes"])
		assert.Equal(t, !c.reverse, of("sum_sent")["sender"])
		assert.Equal(t, c.bidir, of("sum_sent_bidir_reverse") != nil)
		if c.bidir {
			assert.EqualValues(t, 9e8, of("sum_sent_bidir_reverse")["bytes"])
			assert.EqualValues(t, 1e9, of("sum_received_bidir_reverse")["bytes"])
		}
		r.There = nil // a lost server
		require.Len(t, endOf(r)["streams"], len(r.Here.Streams))
	}
}

// What HdrHistogram's tools read is what was written.
func TestTimesOutliveJSON(t *testing.T) {
	b, err := json.Marshal(times(1000))
	require.NoError(t, err)
	var l meter.Times
	require.NoError(t, json.Unmarshal(b, &l))
	assert.EqualValues(t, 1000, l.Count())
	assert.InEpsilon(t, 500., meter.Micros(l.At(50)), 0.002)
	var shown struct {
		Percentiles map[string]float64 `json:"percentiles_us"`
	}
	require.NoError(t, json.Unmarshal(b, &shown))
	assert.InEpsilon(t, 999.9, shown.Percentiles["p99.9"], 0.002)
}

// comparison returns one of two rounds.
func comparison(sdp, tcp [2]int) *Comparison {
	c := NewComparison(NewHead("test", nil), 2)
	for i := range 2 {
		c.Add("64 B", "us", "sdp", times(sdp[i]))
		c.Add("64 B", "us", "tcp", times(tcp[i]))
		c.Add("64 KiB one way", "GB/s", "sdp", times(sdp[i]))
		c.Add("64 KiB one way", "GB/s", "tcp", times(tcp[i]))
		c.Add("limit", "us", Limit, times(10))
		c.Rounds++
	}
	c.Finish(0, nil)
	return c
}

func TestTheVerdictSaysWhatTheRoundsSay(t *testing.T) {
	for _, tt := range []struct {
		sdp, tcp [2]int
		want     string
	}{
		{[2]int{10, 10}, [2]int{100, 120}, "SDP was faster than TCP in each round in 2 of 2 tests, 11.0 times."},
		{[2]int{100, 100}, [2]int{10, 10}, "SDP was faster than TCP in each round in 0 of 2 tests; slower in each round: 64 B; 64 KiB one way."},
		{[2]int{10, 100}, [2]int{50, 50}, "SDP was faster than TCP in each round in 0 of 2 tests; rounds differ: 64 B; 64 KiB one way."},
	} {
		c := comparison(tt.sdp, tt.tcp)
		assert.Equal(t, tt.want, c.Verdict)
		c.Others, c.CPUs = 1.5, 2
		var b strings.Builder
		require.NoError(t, c.Text(&b))
		assert.Contains(t, b.String(), "Busy: others used 1.5 of 2 processors.")
		assert.Equal(t, tt.sdp[0] != tt.sdp[1], strings.Contains(b.String(), "Unsteady, rounds differ: sdp: 64 B (10.0x)"), b.String())
	}
	c := comparison([2]int{10, 10}, [2]int{100, 200})
	c.Add("one more", "us", "sdp", times(100))
	c.Add("one more", "us", "tcp", times(100))
	c.Finish(0, nil)
	assert.Contains(t, c.Verdict, "in 2 of 3 tests, 15.0 times; rounds differ: one more.")
	c = comparison([2]int{10, 10}, [2]int{100, 100})
	assert.InEpsilon(t, 5., c.Rows[0].Sides["sdp"].Median, 0.01)
	assert.InEpsilon(t, 209.7, c.Rows[1].Sides["sdp"].Median, 0.01) // a MiB in 5 µs
	assert.Less(t, c.Rows[1].Sides["sdp"].P99, c.Rows[1].Sides["sdp"].Median)
}

func TestTheTableHas80Columns(t *testing.T) {
	c := NewComparison(NewHead("test", nil), 2)
	long, short := &meter.Times{}, times(1)
	long.Add(time.Hour)
	for i, name := range []string{"16 KiB round trip", "64 KiB one way"} {
		for _, side := range meter.Transports {
			for round, t := range []*meter.Times{long, short} {
				if side != "sdp" {
					t = []*meter.Times{short, long}[round]
				}
				c.Add(name, []string{"us", "GB/s"}[i], side, t)
			}
		}
	}
	c.Finish(0, errors.New(strings.Repeat("long error ", 20)))
	var b strings.Builder
	require.NoError(t, c.Text(&b))
	for line := range strings.Lines(b.String()) {
		assert.LessOrEqual(t, utf8.RuneCountInString(line), 81, line)
	}
}

func TestSweepIsNetPIPEsFile(t *testing.T) {
	var s Sweep
	assert.Equal(t, "    1000 16000.000000  0.000000500\n", s.Add(1000, times(1)))
	assert.Equal(t, 1, SweepSizes()[0])
	assert.Equal(t, 8<<20, SweepSizes()[len(SweepSizes())-1])
}

// box is where a text is, at most.
type box struct {
	text                     string
	left, top, right, bottom float64
}

// boxes returns the texts of a picture, and its size.
func boxes(t *testing.T, picture string) (all []box, width, height float64) {
	t.Helper()
	var x0, y0 float64 // of the group
	for dec := xml.NewDecoder(strings.NewReader(picture)); ; {
		tok, err := dec.Token()
		if err == io.EOF {
			return all, width, height
		}
		require.NoError(t, err)
		start, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range start.Attr {
			at[a.Name.Local] = a.Value
		}
		switch start.Name.Local {
		case "svg":
			require.NoError(t, scan(at["width"], &width))
			require.NoError(t, scan(at["height"], &height))
		case "g":
			xy := strings.Split(strings.TrimSuffix(strings.TrimPrefix(at["transform"], "translate("), ")"), ",")
			require.NoError(t, errors.Join(scan(xy[0], &x0), scan(xy[1], &y0)))
		case "text":
			var x, y float64
			require.NoError(t, errors.Join(scan(at["x"], &x), scan(at["y"], &y)))
			var s string
			require.NoError(t, dec.DecodeElement(&s, &start))
			wide := float64(utf8.RuneCountInString(s)) * 7.5
			left := x + x0 - map[string]float64{"start": 0, "middle": wide / 2, "end": wide}[at["text-anchor"]]
			all = append(all, box{s, left, y + y0 - 12, left + wide, y + y0 + 3})
		}
	}
}

func scan(s string, v *float64) error { return json.Unmarshal([]byte(s), v) }

func TestNoTextOfAPictureIsOverAnother(t *testing.T) {
	bw := result(meter.Bandwidth, false, true)
	for i := range 20 {
		bw.Intervals = append(bw.Intervals, meter.Interval{Start: time.Duration(i) * time.Second, End: time.Duration(i+1) * time.Second, Streams: bw.Here.Streams})
	}
	sweep := &Sweep{Transport: "sdp"}
	for _, size := range SweepSizes() {
		sweep.Add(size, times(size%5000+1))
	}
	loaded := result(meter.Loaded, false, false)
	loaded.Here.Sent = *times(500)
	pes := &SHMEM{PEs: 2}
	for _, size := range []int{8, 64, 1 << 20} {
		pes.Mapped = append(pes.Mapped, SHMEMItem{Item: "put", Size: size, Batch: 16, Times: *times(size%999 + 1)})
		pes.Requests = append(pes.Requests, SHMEMItem{Item: "get", Size: size, Batch: 1, Times: *times(size%99 + 1)})
	}
	big := Chart{Title: strings.Repeat("long title ", 20), X: strings.Repeat("x", 200), Y: strings.Repeat("y", 200), Lines: []Line{{Name: strings.Repeat("name ", 50), Points: [][2]float64{{1e-9, 1e12}, {5e11, -3}}}}}
	for name, c := range map[string]Chart{
		"bw": Picture(bw), "lat": Picture(result(meter.Latency, false, false)), "loaded": Picture(loaded), "sweep": sweep.Picture(),
		"comparison": comparison([2]int{10, 10}, [2]int{100, 120}).Picture(), "shmem": pes.Picture(), "nothing": {}, "big": big,
		"nothing measured": Picture(&meter.Result{Here: &meter.Side{}, There: &meter.Side{}}),
	} {
		picture := string(c.SVG())
		all, width, height := boxes(t, picture)
		for i, one := range all {
			assert.True(t, one.left >= 0 && one.top >= 0 && one.right <= width && one.bottom <= height, "%s: %+v is outside of %g x %g", name, one, width, height)
			for _, other := range all[:i] {
				apart := one.right <= other.left || other.right <= one.left || one.bottom <= other.top || other.bottom <= one.top
				assert.True(t, apart, "%s: %+v is over %+v", name, one, other)
			}
		}
		assert.NotContains(t, picture, "NaN")
	}
}

// The numbers of an axis have no exponent, as 10000 and not 1e+04, unless they are too long for the picture.
func TestAxesHaveNumbersThatPeopleWrite(t *testing.T) {
	until := func(end time.Duration) Chart {
		r := result(meter.Bandwidth, false, false)
		r.Intervals = []meter.Interval{{End: end}}
		return Picture(r)
	}
	points := func(y float64) Chart { return Chart{Lines: []Line{{Points: [][2]float64{{1, 1}, {10_000, y}}}}} }
	for _, c := range []struct {
		picture Chart
		name    string
	}{
		{points(1e-5), "0.00001"}, {points(1e6), "10000"}, {points(1e6), "1000000"}, {points(1e12), "1e+12"},
		{until(101 * time.Millisecond), "0.1"}, {until(2500 * time.Second), "2500"},
	} {
		assert.True(t, strings.Contains(string(c.picture.SVG()), ">"+c.name+"</text>"), "no axis has %s", c.name)
	}
}
