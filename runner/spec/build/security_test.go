package build

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"monopod/runner/spec/spectest"
)

func TestCapabilities(t *testing.T) {
	available := spectest.Host().Capabilities
	without := func(names ...string) []string {
		return slices.DeleteFunc(sorted(available), func(c string) bool { return slices.Contains(names, strings.TrimPrefix(c, capPrefix)) })
	}
	defaults := sorted(defaultCapabilities())
	list := func(names ...corev1.Capability) []corev1.Capability { return names }
	tests := []struct {
		name      string
		add, drop []corev1.Capability
		want      []string
	}{
		{"nothing asked gives the defaults", nil, nil, defaults},
		{"adding a default one changes nothing", list("CHOWN"), nil, defaults},
		{"one more", list("NET_ADMIN"), nil, sorted(append(defaultCapabilities(), "CAP_NET_ADMIN"))},
		{"names in any case, with and without prefix, once each", list("net_admin", "CAP_NET_ADMIN"), nil, sorted(append(defaultCapabilities(), "CAP_NET_ADMIN"))},
		{"drop ALL leaves none", nil, list("ALL"), nil},
		{"drop all in small letters leaves none", nil, list("all"), nil},
		{"drop ALL, add one leaves that one", list("KILL"), list("ALL"), []string{"CAP_KILL"}},
		{"add ALL gives what there is", list("ALL"), nil, sorted(available)},
		{"add ALL, drop one", list("ALL"), list("SYS_ADMIN"), without("SYS_ADMIN")},
		{"add ALL and drop ALL leaves none", list("ALL"), list("ALL"), nil},
		{"add ALL and one, drop ALL leaves that one", list("ALL", "KILL"), list("ALL"), []string{"CAP_KILL"}},
		{"drop wins over add of the same name", list("NET_ADMIN"), list("NET_ADMIN"), defaults},
		{"dropping what is not there changes nothing", nil, list("SYS_TIME"), defaults},
		{"one that nobody has may be dropped", nil, list("SYS_RESOURCE"), defaults},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := capabilities(available, security{add: tt.add, drop: tt.drop})
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("capabilities = %v, %v\nwant %v", got, err, tt.want)
			}
		})
	}
	t.Run("privileged gives what there is, whatever else is asked", func(t *testing.T) {
		got, err := capabilities(available, security{privileged: true, drop: list("ALL")})
		if err != nil || !slices.Equal(got, sorted(available)) {
			t.Errorf("capabilities = %v, %v", got, err)
		}
	})
	t.Run("a default one that this process lacks is left out", func(t *testing.T) {
		got, err := capabilities(without("AUDIT_WRITE"), security{})
		if err != nil || slices.Contains(got, "CAP_AUDIT_WRITE") || len(got) != 13 {
			t.Errorf("capabilities = %v, %v", got, err)
		}
	})
	if n := len(strings.Fields(knownCapabilities)); n != 41 {
		t.Errorf("%d known capabilities, Linux has 41", n)
	}
}

func TestRequestedUser(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	tests := []struct {
		name      string
		pod       *corev1.PodSecurityContext
		container *corev1.SecurityContext
		uid, gid  *int64
		nonRoot   bool
	}{
		{name: "nothing asked"},
		{
			name: "the pod's", pod: &corev1.PodSecurityContext{RunAsUser: n(1), RunAsGroup: n(2), RunAsNonRoot: new(true)},
			uid: n(1), gid: n(2), nonRoot: true,
		},
		{
			name:      "the container's wins, field by field",
			pod:       &corev1.PodSecurityContext{RunAsUser: n(1), RunAsGroup: n(2), RunAsNonRoot: new(true)},
			container: &corev1.SecurityContext{RunAsUser: n(0), RunAsNonRoot: new(false)},
			uid:       n(0), gid: n(2),
		},
		{name: "a pod's group without a user", pod: &corev1.PodSecurityContext{RunAsGroup: n(2)}, gid: n(2)},
		{name: "a container's group without a user", container: &corev1.SecurityContext{RunAsGroup: n(2)}, gid: n(2)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.SecurityContext, c.SecurityContext = tt.pod, tt.container
			})
			uid, gid, nonRoot := RequestedUser(pod, "app")
			if !ptr.Equal(uid, tt.uid) || !ptr.Equal(gid, tt.gid) || nonRoot != tt.nonRoot {
				t.Errorf("RequestedUser = %v, %v, %t", uid, gid, nonRoot)
			}
		})
	}
}

func TestSeccompFor(t *testing.T) {
	profile := func(kind corev1.SeccompProfileType) *corev1.SeccompProfile { return &corev1.SeccompProfile{Type: kind} }
	unconfined, standard := profile(corev1.SeccompProfileTypeUnconfined), profile(corev1.SeccompProfileTypeRuntimeDefault)
	tests := []struct {
		name           string
		pod, container *corev1.SeccompProfile
		privileged     bool
		defaults       bool
		want           corev1.SeccompProfileType
	}{
		{name: "nothing said where the machine has a default", defaults: true, want: corev1.SeccompProfileTypeRuntimeDefault},
		{name: "what is said wins over the default of the machine", pod: unconfined, defaults: true, want: corev1.SeccompProfileTypeUnconfined},
		{name: "privileged has no default", privileged: true, defaults: true, want: corev1.SeccompProfileTypeUnconfined},
		{name: "nothing said is unconfined", want: corev1.SeccompProfileTypeUnconfined},
		{name: "the pod's", pod: standard, want: corev1.SeccompProfileTypeRuntimeDefault},
		{name: "the container's", container: standard, want: corev1.SeccompProfileTypeRuntimeDefault},
		{name: "the container's wins", pod: standard, container: unconfined, want: corev1.SeccompProfileTypeUnconfined},
		{name: "a file of the machine", container: profile(corev1.SeccompProfileTypeLocalhost), want: corev1.SeccompProfileTypeLocalhost},
		{name: "privileged is always unconfined", pod: standard, container: standard, privileged: true, want: corev1.SeccompProfileTypeUnconfined},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
				p.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: tt.pod}
				c.SecurityContext = &corev1.SecurityContext{SeccompProfile: tt.container, Privileged: &tt.privileged}
			})
			if got := SeccompFor(pod, "app", tt.defaults).Type; got != tt.want {
				t.Errorf("SeccompFor = %s, want %s", got, tt.want)
			}
		})
	}
}
