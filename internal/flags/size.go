package flags

import (
	"errors"
	"strconv"
	"strings"
)

// Size is a flag of a number of bytes, as in 65536, 64K or 1M. It is a [pflag.Value].
type Size int64

const units = "KMGT"

// Type returns what help calls the value.
func (*Size) Type() string { return "SIZE" }

// String returns the number with the largest unit that leaves it whole.
func (s *Size) String() string {
	n, unit := int64(*s), 0
	for n != 0 && n%1024 == 0 && unit < len(units) {
		n, unit = n/1024, unit+1
	}
	return strconv.FormatInt(n, 10) + units[max(unit-1, 0):unit]
}

// Set parses a number, which may have a unit.
func (s *Size) Set(text string) error {
	digits := strings.TrimRight(text, units)
	n, err := strconv.ParseUint(digits, 10, 64)
	shift := 0
	if len(digits) < len(text) {
		shift = 10 * (strings.IndexByte(units, text[len(text)-1]) + 1)
	}
	if err != nil || len(text) > len(digits)+1 || n > 1<<62>>shift {
		return errors.New("want " + wants[s.Type()])
	}
	*s = Size(n << shift)
	return nil
}
