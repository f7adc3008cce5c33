package meter

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
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

// MarshalText encodes the distribution as HdrHistogram's compressed form, version 2, in base64.
func (t *Times) MarshalText() ([]byte, error) {
	if t.Count() == 0 {
		return nil, nil
	}
	return t.h.Encode(hdr.V2CompressedEncodingCookieBase)
}

// maxText bounds the text of a distribution. One with each of its counters used takes half of that.
const maxText = 1 << 20

// UnmarshalText decodes what MarshalText encodes. It refuses what would take more memory.
func (t *Times) UnmarshalText(b []byte) (err error) {
	if t.h = nil; len(b) == 0 {
		return nil
	}
	if len(b) > maxText || !sameRange(b) {
		return errors.New("a distribution of times with another range")
	}
	t.h, err = hdr.Decode(b)
	return err
}

// sameRange returns whether an encoded distribution has the range and the precision of ours. Decode makes
// counters for whatever its header says.
func sameRange(text []byte) bool {
	r := base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text))
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
