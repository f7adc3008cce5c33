package perf

import (
	"math"
	"slices"
	"time"
)

// Spread is what the rounds gave: the median, and how far they were apart.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf needs one value at least. The median of an even number of values is
// the mean of the two in the middle.
func spreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// percentile is the smallest sample that at least p percent of the samples do
// not exceed (nearest rank). sorted is in ascending order and not empty;
// 0 < p <= 100.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// timesFaster compares two transports round by round. Both have as many rounds.
func timesFaster(t Test, own, base []float64) Ratio {
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = t.faster(own[i], base[i])
	}
	return Ratio{
		Spread:      spreadOf(ratios),
		AgainstBest: t.faster(spreadOf(own).Median, t.best(spreadOf(base))),
	}
}

// faster is how many times better own is than base.
func (t Test) faster(own, base float64) float64 {
	if t == RoundTrip { // less is better
		return base / own
	}
	return own / base
}

func (t Test) best(s Spread) float64 {
	if t == RoundTrip {
		return s.Min
	}
	return s.Max
}
