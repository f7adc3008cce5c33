package launch

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxName is how long a job's name may be, in bytes: with "shmem-" before it, it
// is still the name of a fabric.
const MaxName = 24

const hashDigits = 16 // 64 bits: no two jobs of a machine have the same by chance

// given is a name as it was given, if it can be one, else a hash of it.
func given(name string) string {
	ok := name != "" && len(name) <= MaxName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if ok {
		return name
	}
	return hashed("job", name)
}

// hashed is a name that differs if any of parts does. prefix has at most 7 letters.
func hashed(prefix string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00"))) // no variable has a zero byte
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

// random is the rest of a name that no other job has.
func random() string {
	var b [hashDigits / 2]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// NewName is a name for a new job, that no other has.
func NewName() string { return "run-" + random() }
