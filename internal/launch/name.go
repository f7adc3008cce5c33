package launch

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// MaxName is the longest name of a job, in bytes. With "shmem-" before it, it is
// still a name for a fabric.
const MaxName = 24

const hashDigits = 16 // 64 bits, so that no two jobs of a machine have the same by chance

// given returns a name unchanged if it is valid, or else a hash of it.
func given(name string) string {
	if name != "" && len(name) <= MaxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" {
		return name
	}
	return hashed("job", name)
}

// hashed returns a name that differs if any of parts does. prefix has at most 7
// letters.
func hashed(prefix string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00"))) // no variable has a zero byte
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashDigits]
}

// random returns the random part of a name that no other job has.
func random() string { return strings.ToLower(rand.Text())[:hashDigits] }

// NewName returns a name for a new job. No other job has it.
func NewName() string { return "run-" + random() }
