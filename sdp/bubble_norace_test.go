//go:build !race

package sdp

const raceDetected = false
