// Package selinux chooses the SELinux labels of a container from seLinuxOptions and the policy of the machine.
// It is pure: it does not read the policy, and does not label files.
package selinux

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec"
)

// Policy is what the machine's policy gives containers: labels like system_u:system_r:container_t:s0.
type Policy struct {
	// Process is that of processes, File that of files.
	Process, File string
}

// Labels are those of a container.
type Labels struct {
	// Process is empty for privileged containers, which run unconfined.
	Process string
	// Mount is that of the root file system and of volumes.
	Mount string
}

// Options returns the options that count for a container, nil when there are none. Those of the container count
// instead of those of the pod, as a whole.
func Options(pod *corev1.Pod, container string) *corev1.SELinuxOptions {
	c, err := spec.FindContainer(pod, container)
	if err != nil {
		return nil
	}
	if s := c.SecurityContext; s != nil && s.SELinuxOptions != nil {
		return s.SELinuxOptions
	}
	if s := pod.Spec.SecurityContext; s != nil {
		return s.SELinuxOptions
	}
	return nil
}

// LabelsFor returns the labels of a container that has options: those of the policy, with the options over them. Without a
// level all containers of a pod get the same pair of categories, which other pods most likely do not have.
func (p Policy) LabelsFor(pod *corev1.Pod, container string) (Labels, error) {
	o := Options(pod, container)
	process, file := strings.SplitN(p.Process, ":", 4), strings.SplitN(p.File, ":", 4)
	if o == nil || len(process) < 3 || len(file) < 3 {
		return Labels{}, fmt.Errorf("seLinuxOptions: the machine's policy has no labels for containers: %q, %q", p.Process, p.File)
	}
	if o.Level != "" && !selinuxLevel.MatchString(o.Level) {
		return Labels{}, fmt.Errorf("the format of 'level' %q is not correct", o.Level)
	}
	for i, value := range []string{o.User, o.Role, o.Type} {
		if value != "" && !selinuxName.MatchString(value) {
			return Labels{}, fmt.Errorf("seLinuxOptions: %q is not a name", value)
		}
		if value != "" {
			process[i] = value
		}
	}
	if o.User != "" {
		file[0] = o.User
	}
	if len(process) == 4 && len(file) == 4 { // the policy has levels
		level := o.Level
		if level == "" {
			level = categories(string(pod.UID))
		}
		process[3], file[3] = level, level
	}
	labels := Labels{Process: strings.Join(process, ":"), Mount: strings.Join(file, ":")}
	if c, err := spec.FindContainer(pod, container); err == nil && c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false) {
		labels.Process = ""
	}
	return labels, nil
}

// selinuxLevel is what containerd takes for a level.
var selinuxLevel = regexp.MustCompile(`^s\d(-s\d)??(:c\d{1,4}(\.c\d{1,4})?(,c\d{1,4}(\.c\d{1,4})?)*)?$`)

// selinuxName matches users, roles and types. A label becomes the value of a mount option in quotes, which a name must not end.
var selinuxName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// maxCategory is how many categories policies have.
const maxCategory = 1024

// categories returns a level with two categories that follow from the uid of a pod.
func categories(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	a, b := binary.BigEndian.Uint32(sum[:4])%maxCategory, binary.BigEndian.Uint32(sum[4:8])%(maxCategory-1)
	if b >= a {
		b++
	}
	return fmt.Sprintf("s0:c%d,c%d", min(a, b), max(a, b))
}

// ParseContexts reads the file lxc_contexts of a policy.
func ParseContexts(text string) Policy {
	var p Policy
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		value = strings.Trim(strings.TrimSpace(value), `"`)
		switch strings.TrimSpace(name) {
		case "process":
			p.Process = value
		case "file":
			p.File = value
		}
	}
	return p
}
