package meter

import (
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Percentiles lists the percentiles in a report.
var Percentiles = []float64{50, 90, 99, 99.9, 99.99, 99.999}

// longest is the longest time of a distribution; longer ones count as this one.
const longest = time.Hour

// Times is a distribution of times, exact to a thousandth. One goroutine uses it at a time. The zero
// value has none. In JSON it is what HdrHistogram's tools read.
type Times struct{ h *hdr.Histogram }

func (t *Times) histogram() *hdr.Histogram {
	if t.h == nil {
		t.h = hdr.New(1, int64(longest), 3)
	}
	return t.h
}

// Add adds one time. It does not allocate after the first one.
func (t *Times) Add(d time.Duration) {
	_ = t.histogram().RecordValue(int64(min(max(d, 1), longest)))
}

// Merge adds all times of another distribution.
func (t *Times) Merge(o *Times) {
	if o.h != nil {
		t.histogram().Merge(o.h)
	}
}

// Count returns how many times there are.
func (t *Times) Count() int64 {
	if t.h == nil {
		return 0
	}
	return t.h.TotalCount()
}

// At returns a percentile, or 0 if there are no times.
func (t *Times) At(percentile float64) time.Duration {
	return time.Duration(t.histogram().ValueAtPercentile(percentile))
}

// Mean returns the mean, or 0.
func (t *Times) Mean() time.Duration { return time.Duration(t.histogram().Mean()) }

// Min and Max return the extremes.
func (t *Times) Min() time.Duration { return t.At(0) }
func (t *Times) Max() time.Duration { return t.At(100) }

// timesJSON is a distribution in JSON, in microseconds.
type timesJSON struct {
	Count       int64              `json:"count"`
	Min         float64            `json:"min_us"`
	Mean        float64            `json:"mean_us"`
	Max         float64            `json:"max_us"`
	Percentiles map[string]float64 `json:"percentiles_us"`
	Histogram   string             `json:"histogram"` // HdrHistogram's version 2, compressed, base64; in nanoseconds
}

// Micros returns a time in microseconds.
func Micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// MarshalJSON encodes the distribution, or null if there are no times.
func (t *Times) MarshalJSON() ([]byte, error) {
	if t.Count() == 0 {
		return []byte("null"), nil
	}
	text, err := t.h.Encode(hdr.V2CompressedEncodingCookieBase)
	j := timesJSON{t.Count(), Micros(t.Min()), Micros(t.Mean()), Micros(t.Max()), make(map[string]float64), string(text)}
	for _, p := range Percentiles {
		j.Percentiles["p"+strconv.FormatFloat(p, 'f', -1, 64)] = Micros(t.At(p))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(j)
}

// maxText bounds the text of a distribution. One with each of its counters used takes half of that.
const maxText = 1 << 20

// UnmarshalJSON decodes what MarshalJSON encodes. It refuses what would take more memory.
func (t *Times) UnmarshalJSON(b []byte) error {
	var j timesJSON
	t.h = nil
	if err := json.Unmarshal(b, &j); err != nil || j.Histogram == "" {
		return err
	}
	if len(j.Histogram) > maxText || !sameRange(j.Histogram) {
		return errors.New("a distribution of times with another range")
	}
	var err error
	t.h, err = hdr.Decode([]byte(j.Histogram))
	return err
}

// sameRange returns whether an encoded distribution has the range and the precision of ours. Decode makes
// counters for whatever its header says.
func sameRange(text string) bool {
	r := base64.NewDecoder(base64.StdEncoding, strings.NewReader(text))
	var cookie [8]byte
	if _, err := io.ReadFull(r, cookie[:]); err != nil {
		return false
	}
	z, err := zlib.NewReader(r)
	if err != nil {
		return false
	}
	var h struct {
		Cookie, Size, Offset, Digits uint32
		Lowest, Highest              int64
	}
	return binary.Read(z, binary.BigEndian, &h) == nil && h.Digits == 3 && h.Lowest == 1 && h.Highest == int64(longest)
}
