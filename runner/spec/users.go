package spec

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// UserIDs is how many user and group ids a pod with a user namespace of its own has.
const UserIDs = 65536

// idMappings maps the ids of a pod to those of the machine; nil when they are the same.
func idMappings(s Sandbox) []specs.LinuxIDMapping {
	if s.UserNS == "" {
		return nil
	}
	return []specs.LinuxIDMapping{{ContainerID: 0, HostID: s.FirstID, Size: UserIDs}}
}

// checkMapped refuses users and groups that the pod's user namespace does not have: nobody could be them.
func checkMapped(in Input) error {
	if in.Sandbox.UserNS == "" {
		return nil
	}
	for _, id := range append(groups(in), in.User.UID) {
		if id >= UserIDs {
			return fmt.Errorf("hostUsers: false: the pod has user and group ids up to %d, not %d", UserIDs-1, id)
		}
	}
	return nil
}
