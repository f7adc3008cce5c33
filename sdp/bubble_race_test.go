//go:build race

package sdp

// raceDetected: the race detector finds what comes in the wrong order before a bubble does.
const raceDetected = true
