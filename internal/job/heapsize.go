package job

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// sizeText matches a number, perhaps with a fraction and a unit. As the specification
// has it, what follows a unit is ignored.
var sizeText = regexp.MustCompile(`^([0-9]+\.?[0-9]*(?:e\+?[0-9]+)?|\.[0-9]+)(?:([kmgt]).*)?$`)

var errSize = errors.New("want bytes up to 1t, such as 65536, 512m or 1.5g")

// parseSize parses a number of bytes in the form of SHMEM_SYMMETRIC_SIZE. A unit of k, m, g
// or t, in either case, is a power of 1024. A fraction of a byte is rounded up.
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
	if v = math.Ceil(v); v > MaxHeap {
		return 0, errSize
	}
	return int(v), nil
}
