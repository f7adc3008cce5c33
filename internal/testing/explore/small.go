package explore

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// World is a small case: a state of all that the test knows of, and how much may still
// happen.
type World[W any] interface {
	// Clone returns a copy that shares nothing that changes.
	Clone() W
	// Key is equal for two worlds if all that can follow is.
	Key() string
	// Steps returns what may happen next.
	Steps() []Step[W]
	// Settle has all happen that is under way or due, and checks that nothing is missing
	// then.
	Settle()
	// Wrong returns the first thing that may not happen, or "".
	Wrong() string
}

// Step is what may happen in a world.
type Step[W any] struct {
	Name string
	// Do has it happen. It reports false if it could not, and nothing counts as changed.
	Do func(W) bool
}

// Once skips a test that visits all states, which one configuration of a run does. The others have -short.
func Once(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("small cases are visited without -short")
	}
}

// Small visits each state that can follow w, and settles a copy of each. It returns what went
// wrong first and the steps that led there, or "", and how many states it visited. More than
// limit of them are a fault of the test, which Small returns as wrong.
func Small[W World[W]](w W, limit int) (wrong string, states int) {
	x := explorer[W]{seen: map[[sha256.Size]byte]struct{}{}, limit: limit}
	return x.visit(w, nil), len(x.seen)
}

type explorer[W World[W]] struct {
	seen  map[[sha256.Size]byte]struct{} // by the hash of their keys
	limit int
}

func (x *explorer[W]) visit(w W, path []string) (wrong string) {
	if w.Wrong() != "" {
		return fmt.Sprint(w.Wrong(), ", after ", path)
	}
	key := sha256.Sum256([]byte(w.Key()))
	if _, ok := x.seen[key]; ok {
		return ""
	}
	x.seen[key] = struct{}{}
	if len(x.seen) > x.limit {
		return "too many states"
	}
	end := w.Clone()
	if end.Settle(); end.Wrong() != "" {
		return fmt.Sprint(end.Wrong(), ", in the end, after ", path)
	}
	for _, s := range w.Steps() {
		next := w.Clone()
		if !s.Do(next) {
			continue
		}
		if wrong = x.visit(next, append(path[:len(path):len(path)], s.Name)); wrong != "" {
			return wrong
		}
	}
	return ""
}
