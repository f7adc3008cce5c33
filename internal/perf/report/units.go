package report

import (
	"fmt"
	"math"
	"strings"
)

// Number returns v with three significant digits.
func Number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "-"
	case v == 0:
		return "0"
	case v < 0.0995:
		return fmt.Sprintf("%.2g", v)
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// short returns v in at most five characters.
func short(v float64) string {
	switch {
	case v < 0.0995:
		return fmt.Sprintf("%.3f", v)
	case v >= 99_999.5:
		return strings.Replace(scaled(v, 1000), " ", "", 1)
	}
	return Number(v)
}

// scaled returns v with a prefix: K, M, G or T.
func scaled(v, step float64) string {
	prefix := ""
	for _, p := range []string{"K", "M", "G", "T"} {
		if v < step {
			break
		}
		v, prefix = v/step, p
	}
	return Number(v) + " " + prefix
}

// Format is how iperf3's -f has rates: k, m, g and t are bits per second by thousands, capitals
// bytes per second by 1024. 0 picks the prefix.
type Format byte

// Rate returns a rate.
func (f Format) Rate(bytesPerSecond float64) string {
	i := strings.IndexByte("kmgt", byte(f)|0x20)
	switch {
	case f == 0:
		return scaled(bytesPerSecond*8, 1000) + "bits/sec"
	case f < 'a':
		return fmt.Sprintf("%s %cBytes/sec", Number(bytesPerSecond/math.Pow(1024, float64(i+1))), f)
	}
	return fmt.Sprintf("%s %cbits/sec", Number(bytesPerSecond*8/math.Pow(1000, float64(i+1))), f-0x20)
}

// Bytes returns an amount.
func Bytes(n uint64) string { return scaled(float64(n), 1024) + "Bytes" }
