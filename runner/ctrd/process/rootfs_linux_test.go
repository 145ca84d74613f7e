package process

import (
	"os"
	"reflect"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"monopod/internal/tree"
)

func TestWhoWritesFilesInAContainer(t *testing.T) {
	t.Parallel()
	caps := &specs.LinuxCapabilities{Effective: []string{"CAP_CHOWN", "CAP_NET_RAW", "CAP_DAC_OVERRIDE"}, Ambient: []string{"CAP_FOWNER"}}
	mapped := &specs.Linux{
		UIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 65536, Size: 1000}, {ContainerID: 1000, HostID: 200000, Size: 10}},
		GIDMappings: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 70000, Size: 65536}},
	}
	for name, c := range map[string]struct {
		spec specs.Spec
		want tree.User
	}{
		"root": {specs.Spec{Process: &specs.Process{Capabilities: caps}}, tree.User{Capabilities: 1<<unix.CAP_CHOWN | 1<<unix.CAP_DAC_OVERRIDE}},
		"another user": {
			specs.Spec{Process: &specs.Process{User: specs.User{UID: 7, GID: 8, AdditionalGids: []uint32{9}}, Capabilities: caps}, Linux: &specs.Linux{}},
			tree.User{UID: 7, GID: 8, Groups: []int{9}, Capabilities: 1 << unix.CAP_FOWNER},
		},
		"root of its own":       {specs.Spec{Process: &specs.Process{}, Linux: mapped}, tree.User{UID: 65536, GID: 70000}},
		"another one of them":   {specs.Spec{Process: &specs.Process{User: specs.User{UID: 1003, GID: 5}}, Linux: mapped}, tree.User{UID: 200003, GID: 70005}},
		"one that is not there": {specs.Spec{Process: &specs.Process{User: specs.User{UID: 4000}}, Linux: mapped}, tree.User{UID: 65534, GID: 70000}},
	} {
		if got := userOf(&c.spec); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAProcessThatIsNotOfTheContainerHasNoFilesOfIt(t *testing.T) {
	t.Parallel()
	if f, err := rootOf(os.Getpid(), "c1"); err == nil || !strings.Contains(err.Error(), "has exited") {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := rootOf(1<<30, "c1"); err == nil {
		t.Errorf("%v", f)
	}
}
