// Package doctor finds out whether a process with this user, environment and system would
// listen and dial by SDP, and says what to do where it would not.
//
// It does what such a process does, by the same packages, and reports their errors: it opens the
// fabric's directory, makes the memory of a link, listens on a free port, dials it, and sends a
// byte. So it changes what any process of the fabric would change. The directory of a fabric of
// this user that has a name is made if it is not there, with its empty file, and so is one for
// which a group is given. They stay. A process number, a port and a socket are claimed and given
// back. In a fabric of several hosts it is a member for that moment, and never owns links.
//
// It lists the bridges of the machine, whatever the fabric, and opens none that the fabric does not name.
//
// It measures nothing.
//
//	r := doctor.Run(ctx, "shm:default")
//	err := r.Table(os.Stdout)
package doctor
