package warn

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"monopod/manifests"
)

// users warns of user and group ids that a user namespace does not have: containers with them do not start.
func (c *checker) users(u *unit) {
	if u.spec.HostUsers == nil || *u.spec.HostUsers {
		return
	}
	id := func(field string, id *int64) {
		if id != nil && *id >= manifests.UserIDs {
			c.warn(u.about(field, fmt.Sprintf("%d is never in a user namespace, which has the ids up to %d: a container with it does not start", *id, manifests.UserIDs-1),
				"choose a lower one, or remove hostUsers: false"))
		}
	}
	if s := u.spec.SecurityContext; s != nil {
		id("spec.securityContext.runAsUser", s.RunAsUser)
		id("spec.securityContext.runAsGroup", s.RunAsGroup)
		id("spec.securityContext.fsGroup", s.FSGroup)
		for i := range s.SupplementalGroups {
			id(fmt.Sprintf("spec.securityContext.supplementalGroups[%d]", i), &s.SupplementalGroups[i])
		}
	}
	u.containers(func(path string, k *corev1.Container) {
		if s := k.SecurityContext; s != nil {
			id(path+".securityContext.runAsUser", s.RunAsUser)
			id(path+".securityContext.runAsGroup", s.RunAsGroup)
		}
	})
}
