//go:build race

package sdp

// raceDetected says that the race detector runs. It finds stores in the wrong order before
// a bubble does.
const raceDetected = true
