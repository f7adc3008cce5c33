// Package virtual lets the clock of a bubble of testing/synctest go on where this module polls or waits for a lock. Such a clock
// stands still while a goroutine runs. Only tests set the hooks, before a bubble begins, and take them out when it has ended.
package virtual

// Poll is nil, or called in place of each pause between two polls of a word. Goroutines are then all that runs: no number of
// processors limits how many poll.
var Poll func()

// Wait is nil, or called again and again while a lock is not free. A goroutine that waits for a sync.Mutex would hold the clock
// up.
var Wait func()
