package selinux

import (
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/runner/spec/spectest"
)

const lxcContexts = `# comment
process = "system_u:system_r:container_t:s0"
content = "system_u:object_r:virt_var_lib_t:s0"
file = "system_u:object_r:container_file_t:s0"
ro_file="system_u:object_r:container_ro_file_t:s0"
`

func TestSELinuxLabels(t *testing.T) {
	policy := ParseContexts(lxcContexts)
	options := func(user, role, kind, level string) *corev1.SELinuxOptions {
		return &corev1.SELinuxOptions{User: user, Role: role, Type: kind, Level: level}
	}
	tests := []struct {
		name           string
		pod, container *corev1.SELinuxOptions
		privileged     bool
		want           Labels
	}{
		{name: "the pod's", pod: options("", "", "", "s0:c1,c2"), want: Labels{"system_u:system_r:container_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2"}},
		{
			name: "the container's count alone", pod: options("", "", "pod_t", "s0:c1,c2"), container: options("", "", "", "s0:c3"),
			want: Labels{"system_u:system_r:container_t:s0:c3", "system_u:object_r:container_file_t:s0:c3"},
		},
		{
			name: "all four", container: options("user_u", "user_r", "my_t", "s0-s1:c3.c7"),
			want: Labels{"user_u:user_r:my_t:s0-s1:c3.c7", "user_u:object_r:container_file_t:s0-s1:c3.c7"},
		},
		{
			name: "a privileged container has only files", container: options("", "", "spc_t", "s0"), privileged: true,
			want: Labels{"", "system_u:object_r:container_file_t:s0"},
		},
		{
			name: "no level", container: options("", "", "my_t", ""),
			want: Labels{"system_u:system_r:my_t:s0:c167,c1022", "system_u:object_r:container_file_t:s0:c167,c1022"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := spectest.Pod(func(p *corev1.Pod, c *corev1.Container) {
				p.UID = "uid"
				p.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: tt.pod}
				c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: tt.container, Privileged: &tt.privileged}
			})
			if got, err := policy.LabelsFor(pod, "app"); got != tt.want || err != nil {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
	for _, bad := range []*corev1.SELinuxOptions{
		options(`x",lowerdir=/etc,y="`, "", "", ""), options("", "a b", "", ""), options("", "", "-t", ""), options("", "", "a\n", ""), options("", "", "", "s0\",x"), options("", "", "", "s0:"), options("", "", "a:b", ""), options("", "", "", "secret"),
	} {
		pod := spectest.Pod(func(_ *corev1.Pod, c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{SELinuxOptions: bad}
		})
		if got, err := policy.LabelsFor(pod, "app"); err == nil {
			t.Errorf("%+v gives %+v", bad, got)
		}
		if got, err := (Policy{}).LabelsFor(pod, "app"); err == nil {
			t.Errorf("without a policy: %+v", got)
		}
	}
	if got := Options(spectest.Pod(func(*corev1.Pod, *corev1.Container) {}), "app"); got != nil {
		t.Errorf("without options: %+v", got)
	}
}

func TestCategoriesAreAPair(t *testing.T) {
	seen := map[string]bool{}
	form := regexp.MustCompile(`^s0:c\d+,c\d+$`)
	for _, uid := range []string{"", "a", "b", "c", "d", "e"} {
		level := categories(uid)
		if seen[level] || !form.MatchString(level) || level != categories(uid) {
			t.Errorf("%q has %s", uid, level)
		}
		seen[level] = true
	}
}
