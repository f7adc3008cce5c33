// Package census finds the fabrics of a machine and their processes, and asks these what they know. It reads directories,
// as internal/hostdir has them, and sends each process a greeting that asks for its status. It checks the answers.
//
// It joins no fabric, and makes no link.
package census
