package perf

import (
	"math"
	"slices"
	"time"
)

// Spread is the distribution of a figure over the rounds: the median and the
// extremes.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// SpreadOf needs at least one value. The median of an even number of values is the
// mean of the two in the middle.
func SpreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return Spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// percentile returns the smallest sample that at least p percent of the samples do
// not exceed (nearest rank). sorted is in ascending order and not empty; 0 < p <=
// 100.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// timesFaster compares two transports round by round. Both have as many rounds.
func timesFaster(t Test, own, base []float64) Ratio {
	return Compare(own, base, t == RoundTrip)
}

// Compare computes the ratios of two transports within each round. Both have as
// many rounds, at least one. lessIsBetter says that the values are times.
func Compare(own, base []float64, lessIsBetter bool) Ratio {
	ratios := make([]float64, len(own))
	for i := range own {
		ratios[i] = timesBetter(own[i], base[i], lessIsBetter)
	}
	best := SpreadOf(base).Max
	if lessIsBetter {
		best = SpreadOf(base).Min
	}
	return Ratio{
		Spread:      SpreadOf(ratios),
		AgainstBest: timesBetter(SpreadOf(own).Median, best, lessIsBetter),
	}
}

func timesBetter(own, base float64, lessIsBetter bool) float64 {
	if lessIsBetter {
		return base / own
	}
	return own / base
}
