package meter

import (
	"reflect"

	"github.com/ntbnet/ntbnet/sdp"
)

// addDifference adds after less before to sum, each counter.
func addDifference(sum *sdp.Stats, after, before sdp.Stats) {
	to, a, b := reflect.ValueOf(sum).Elem(), reflect.ValueOf(after), reflect.ValueOf(before)
	for i := range to.NumField() {
		to.Field(i).SetUint(to.Field(i).Uint() + a.Field(i).Uint() - b.Field(i).Uint())
	}
}
