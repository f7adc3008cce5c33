package explore

import "fmt"

// Choices explores a world that is not cloned: it calls run once for each sequence of
// choices. choose(n) returns a number from 0 to n-1, n at least 1. What run does must depend
// on nothing but what choose has returned. Choices returns what went wrong first and the
// choices that led there, or "", and how many runs there were. More than limit of them are a
// fault of the test, which Choices returns as wrong.
func Choices(limit int, run func(choose func(n int) int) (wrong string)) (wrong string, runs int) {
	var path, width []int // the choices of a run, and of how many each was one
	for runs = 1; runs <= limit; runs++ {
		i := 0
		wrong := run(func(n int) int {
			if i == len(path) {
				path, width = append(path, 0), append(width, n)
			}
			i++
			return path[i-1]
		})
		if wrong != "" {
			return fmt.Sprint(wrong, ", by choices ", path), runs
		}
		last := len(path) - 1
		for last >= 0 && path[last]+1 == width[last] {
			last--
		}
		if last < 0 {
			return "", runs
		}
		path, width = path[:last+1], width[:last+1]
		path[last]++
	}
	return "too many runs", limit
}
