package shmem

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// sizeText is a number, perhaps with a fraction, and perhaps a unit. What follows a unit
// is ignored, as the specification wants it.
var sizeText = regexp.MustCompile(`^([0-9]+\.?[0-9]*(?:e\+?[0-9]+)?|\.[0-9]+)(?:([kmgt]).*)?$`)

var errSize = errors.New("want bytes up to 1t, such as 65536, 512m or 1.5g")

// parseSize reads a number of bytes as the specification has it for
// SHMEM_SYMMETRIC_SIZE: with a unit k, m, g or t, in either case, of 1024 each. A part of a
// byte counts as one.
func parseSize(s string) (int, error) {
	m := sizeText.FindStringSubmatch(strings.ToLower(strings.TrimSpace(s)))
	if m == nil {
		return 0, errSize
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, errSize
	}
	if m[2] != "" {
		v = math.Ldexp(v, 10*(1+strings.Index("kmgt", m[2])))
	}
	if v = math.Ceil(v); v > maxHeap {
		return 0, errSize
	}
	return int(v), nil
}
