package meter

import (
	"math"
	"slices"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Percentiles lists the percentiles in a report.
var Percentiles = []float64{50, 90, 99, 99.9, 99.99, 99.999}

// Times is a distribution of times, exact to a thousandth. One goroutine uses it at a time. The zero
// value has none. In JSON it is what HdrHistogram's tools read.
type Times struct{ h *hdr.Histogram }

func (t *Times) histogram() *hdr.Histogram {
	if t.h == nil {
		t.h = hdr.New(1, int64(time.Hour), 3)
	}
	return t.h
}

// Add adds one time. It does not allocate after the first one.
func (t *Times) Add(d time.Duration) {
	_ = t.histogram().RecordValue(min(max(int64(d), 1), int64(time.Hour)))
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
	if t.Count() == 0 {
		return 0
	}
	return time.Duration(t.h.ValueAtPercentile(percentile))
}

// Mean returns the mean.
func (t *Times) Mean() time.Duration {
	if t.Count() == 0 {
		return 0
	}
	return time.Duration(t.h.Mean())
}

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

// UnmarshalText decodes what MarshalText encodes.
func (t *Times) UnmarshalText(b []byte) (err error) {
	t.h = nil
	if len(b) > 0 {
		var h *hdr.Histogram
		if h, err = hdr.Decode(b); err == nil {
			t.histogram().Merge(h) // of our range, whatever theirs is
		}
	}
	return err
}

// Spread is the median of some figures, and the extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf returns the spread of values. The median of an even number of values is the mean of the
// two in the middle. Without values all is NaN.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}
