package main

import "slices"

// ctype is a type of the specification.
type ctype struct {
	name, c string
	// fold is the suffix of the type that reductions use for it, see sma.h.
	fold string
	// alias is the type of which it is another name, on every system with 64-bit long.
	alias string
}

var (
	tFloat      = ctype{name: "float", c: "float", fold: "F32"}
	tDouble     = ctype{name: "double", c: "double", fold: "F64"}
	tLongdouble = ctype{name: "longdouble", c: "long double", fold: "FLONG"}
	tChar       = ctype{name: "char", c: "char", fold: "CHAR"}
	tSchar      = ctype{name: "schar", c: "signed char", fold: "I8"}
	tShort      = ctype{name: "short", c: "short", fold: "I16"}
	tInt        = ctype{name: "int", c: "int", fold: "I32"}
	tLong       = ctype{name: "long", c: "long", fold: "I64"}
	tLonglong   = ctype{name: "longlong", c: "long long", fold: "I64"}
	tUchar      = ctype{name: "uchar", c: "unsigned char", fold: "U8"}
	tUshort     = ctype{name: "ushort", c: "unsigned short", fold: "U16"}
	tUint       = ctype{name: "uint", c: "unsigned int", fold: "U32"}
	tUlong      = ctype{name: "ulong", c: "unsigned long", fold: "U64"}
	tUlonglong  = ctype{name: "ulonglong", c: "unsigned long long", fold: "U64"}
	tInt8       = ctype{"int8", "int8_t", "I8", "signed char"}
	tInt16      = ctype{"int16", "int16_t", "I16", "short"}
	tInt32      = ctype{"int32", "int32_t", "I32", "int"}
	tInt64      = ctype{"int64", "int64_t", "I64", "long"}
	tUint8      = ctype{"uint8", "uint8_t", "U8", "unsigned char"}
	tUint16     = ctype{"uint16", "uint16_t", "U16", "unsigned short"}
	tUint32     = ctype{"uint32", "uint32_t", "U32", "unsigned int"}
	tUint64     = ctype{"uint64", "uint64_t", "U64", "unsigned long"}
	tSize       = ctype{"size", "size_t", "U64", "unsigned long"}
	tPtrdiff    = ctype{"ptrdiff", "ptrdiff_t", "I64", "long"}
	tComplexd   = ctype{name: "complexd", c: "double _Complex", fold: "C64"}
	tComplexf   = ctype{name: "complexf", c: "float _Complex", fold: "C32"}
)

// set is a set of types for which the specification has the same functions.
type set struct {
	name  string
	types []ctype
}

// distinct returns the types of which none is another name of another one in the set.
func (s set) distinct() (all []ctype) {
	for _, t := range s.types {
		if t.alias == "" || !slices.ContainsFunc(s.types, func(o ctype) bool { return o.c == t.alias }) {
			all = append(all, t)
		}
	}
	return all
}

func join(sets ...[]ctype) (all []ctype) {
	for _, s := range sets {
		all = append(all, s...)
	}
	return all
}

var (
	words    = []ctype{tInt, tLong, tLonglong, tUint, tUlong, tUlonglong}
	fixed    = []ctype{tInt32, tInt64, tUint32, tUint64}
	sizes    = []ctype{tSize, tPtrdiff}
	reals    = []ctype{tFloat, tDouble, tLongdouble}
	oldWords = []ctype{tInt, tLong, tLonglong}
	complexs = []ctype{tComplexd, tComplexf}
	integers = []ctype{tChar, tSchar, tShort, tInt, tLong, tLonglong, tUchar, tUshort, tUint, tUlong, tUlonglong,
		tInt8, tInt16, tInt32, tInt64, tUint8, tUint16, tUint32, tUint64, tSize, tPtrdiff}

	rma    = set{"RMA", join(reals, integers)}
	amo    = set{"AMO", join(words, fixed, sizes)}
	extAMO = set{"EXTAMO", join(reals[:2], words, fixed, sizes)}
	bitAMO = set{"BITAMO", join([]ctype{tUint, tUlong, tUlonglong}, fixed)}
	// waits has short types besides. The specification has them, as deprecated ones, for a single word alone.
	waits = set{"WAIT", join(amo.types, []ctype{tShort, tUshort})}

	reduceBits = set{"REDUCEBITS", []ctype{tUchar, tUshort, tUint, tUlong, tUlonglong, tInt8, tInt16, tInt32, tInt64,
		tUint8, tUint16, tUint32, tUint64, tSize}}
	reduceOrder = rma
	reduceSum   = set{"REDUCESUM", join(rma.types, complexs)}

	oldWait     = set{"OLDWAIT", join([]ctype{tShort}, oldWords)}
	activeBits  = set{"ACTIVEBITS", join([]ctype{tShort}, oldWords)}
	activeOrder = set{"ACTIVEORDER", join([]ctype{tShort}, oldWords, reals)}
	activeSum   = set{"ACTIVESUM", join([]ctype{tShort}, oldWords, reals, complexs)}
)
