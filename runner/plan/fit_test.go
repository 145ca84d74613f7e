package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/plan"
	"monopod/runner/plan/fit"
)

// TestReplacedIsWhatPlanReplaces: what clients are told and what is done never differ.
func TestReplacedIsWhatPlanReplaces(t *testing.T) {
	restartOnCPU := corev1.ContainerResizePolicy{ResourceName: corev1.ResourceCPU, RestartPolicy: corev1.RestartContainer}
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"nothing":                              {func(*corev1.Pod) {}, ""},
		"labels":                               {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, ""},
		"a grace period":                       {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, ""},
		"an image":                             {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "busybox:2" }, "a"},
		"all environments":                     {func(p *corev1.Pod) { p.Spec.Containers[0].Env, p.Spec.Containers[1].Env = env(), env() }, "a b"},
		"a probe":                              {func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = &corev1.Probe{PeriodSeconds: 3} }, ""},
		"processes are shared":                 {func(p *corev1.Pod) { p.Spec.HostPID = true }, "a b"},
		"another container":                    {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, testContainer("c", "")) }, ""},
		"another class, with a container less": {func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, "pod"},
		"more cpu":                             {func(p *corev1.Pod) { cpu(p, "2") }, ""},
		"more cpu, restarted": {func(p *corev1.Pod) {
			cpu(p, "2")
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{restartOnCPU}
		}, "a"},
		"the class":          {func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, "pod"},
		"the network":        {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, "pod"},
		"the host name":      {func(p *corev1.Pod) { p.Spec.Hostname = "x" }, "pod"},
		"an init container":  {func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{testContainer("i", "")} }, "pod"},
		"restarted by label": {func(p *corev1.Pod) { p.Annotations = map[string]string{manifests.AnnotationRestarted: "1"} }, "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			was := limited("1", "1Gi")
			now := edited(limited("1", "1Gi"), c.edit)
			pod, containers := fit.Replaced(was, now)
			got := strings.Join(containers, " ")
			if pod {
				got = "pod" + got
			}
			if got != c.want {
				t.Errorf("have %q, want %q", got, c.want)
			}
			o := runs(was)
			actions, _ := plan.Plan(zero, now, o)
			var stops []string
			for _, a := range actions {
				if a.Kind == runner.StopContainer && slices.ContainsFunc(now.Object.Spec.Containers, func(c corev1.Container) bool { return c.Name == a.Container }) {
					stops = append(stops, a.Container)
				}
			}
			if whole := slices.ContainsFunc(actions, func(a runner.Action) bool { return a.Kind == runner.CheckPod }); whole != pod || !pod && fmt.Sprint(stops) != fmt.Sprint(containers) {
				t.Errorf("the plan is %v", actions)
			}
		})
	}
}

func env() []corev1.EnvVar { return []corev1.EnvVar{{Name: "A", Value: "b"}} }

func cpu(p *corev1.Pod, amount string) {
	for _, l := range []corev1.ResourceList{p.Spec.Containers[0].Resources.Limits, p.Spec.Containers[0].Resources.Requests} {
		l[corev1.ResourceCPU] = resource.MustParse(amount)
	}
}
