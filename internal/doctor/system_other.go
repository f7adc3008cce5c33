//go:build !linux

package doctor

import (
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

func (r *Report) system(*spec.Spec) {
	r.fail("system", "use Linux on amd64 or arm64", "SDP does not work here")
}

func (r *Report) foreign([]*status.Directory) {}
