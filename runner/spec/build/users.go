package build

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"monopod/manifests"
	"monopod/runner/spec"
)

// idMappings maps the ids of a pod to those of the machine; nil when they are the same.
func idMappings(s spec.Sandbox) []specs.LinuxIDMapping {
	if s.UserNS == "" {
		return nil
	}
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: s.FirstID, Size: manifests.UserIDs}}
}

// checkMapped refuses users and groups that the pod's user namespace does not map.
func checkMapped(in spec.Input) error {
	if in.Sandbox.UserNS == "" {
		return nil
	}
	for _, id := range append(groups(in), in.User.UID) {
		if id >= manifests.UserIDs {
			return fmt.Errorf("hostUsers: false: the pod has user and group ids up to %d, not %d", manifests.UserIDs-1, id)
		}
	}
	return nil
}
