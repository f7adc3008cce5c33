// Package doctor finds out whether a process with this user, environment and system can
// listen and dial by SDP. It says what to do where it cannot.
//
// It does what such a process does, by the same packages, and reports their errors. It opens the
// fabric's directory, makes the memory of a link, listens on a free port, dials it, and sends a
// byte. So it changes what any process of the fabric would change. It makes the directory of a
// fabric that has a name, or for which a group is given, and its empty file. They stay. A
// process number, a port and a socket are claimed and given back. In a fabric of several hosts
// it is a member for that moment, and never owns links.
//
// It lists the bridges of the machine, whatever the fabric, and opens none that the fabric does not name.
//
// It measures nothing.
//
//	r := doctor.Run(ctx, "shm:default")
//	err := r.Table(os.Stdout)
package doctor
