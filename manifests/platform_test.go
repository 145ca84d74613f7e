package manifests_test

import (
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/manifesttest"
)

func replaced(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}

func TestPlatformMismatch(t *testing.T) {
	const affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [TERM]}]}}}"
	linux := manifests.Platform{OS: "linux", Arch: "amd64"}
	for _, tt := range []struct {
		name, spec string
		platform   manifests.Platform
		want       string
	}{
		{"nothing is asked for", "", linux, ""},
		{"the same system", "os: {name: linux}", linux, ""},
		{"another system", "os: {name: windows}", linux, "it is for windows, but this machine has linux"},
		{"an unknown machine", "os: {name: windows}", manifests.Platform{}, ""},
		{"the same processor", "nodeSelector: {kubernetes.io/arch: amd64}", linux, ""},
		{"another processor", "nodeSelector: {kubernetes.io/arch: arm64}", linux, "it requires kubernetes.io/arch=arm64, but this machine has amd64"},
		{"the label of old", "nodeSelector: {beta.kubernetes.io/os: windows}", linux, "it requires beta.kubernetes.io/os=windows, but this machine has linux"},
		{"a label that says nothing of the platform", "nodeSelector: {disk: ssd}", linux, ""},
		{"a term that is met", replaced(affinity, "TERM", "{key: kubernetes.io/arch, operator: In, values: [amd64, arm64]}"), linux, ""},
		{"a term that is not met", replaced(affinity, "TERM", "{key: kubernetes.io/arch, operator: NotIn, values: [amd64]}"), linux, "no term of its node affinity matches a machine with linux/amd64"},
		{"a term about another label", replaced(affinity, "TERM", "{key: disk, operator: Exists}"), linux, ""},
		{"an operator that does not exist", replaced(affinity, "TERM", "{key: kubernetes.io/os, operator: Is}"), linux, "no term of its node affinity matches a machine with linux/amd64"},
	} {
		pod := manifesttest.Pod(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: c, image: i}]\n  "+tt.spec+"\n")
		got := ""
		if m := tt.platform.Mismatch(&pod.Spec); m != nil {
			got = m.String()
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCopiesAndTemplatesOfWorkloads(t *testing.T) {
	const (
		template = "template: {metadata: {labels: {a: b}}, spec: {RESTART containers: [{name: c, image: i}]}}"
		apps     = "apiVersion: apps/v1\nkind: KIND\nmetadata: {name: w}\nspec: {SPEC selector: {matchLabels: {a: b}}, " + template + "}\n"
		job      = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: w}\nspec: {SPEC " + template + "}\n"
		cron     = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: w}\nspec: {schedule: '0 * * * *', jobTemplate: {spec: {SPEC " + template + "}}}\n"
	)
	for _, tt := range []struct {
		name, text, kind, spec string
		want                   int
	}{
		{"a Deployment", apps, "Deployment", "replicas: 3,", 3},
		{"a Deployment of none", apps, "Deployment", "replicas: 0,", 0},
		{"a Deployment that names no number", apps, "Deployment", "", 1},
		{"a ReplicaSet", apps, "ReplicaSet", "replicas: 2,", 2},
		{"a StatefulSet", apps, "StatefulSet", "serviceName: s, replicas: 2,", 2},
		{"a DaemonSet", apps, "DaemonSet", "", 1},
		{"a Job", job, "", "completions: 5, parallelism: 2,", 2},
		{"a Job that needs fewer pods than may run", job, "", "completions: 1, parallelism: 2,", 1},
		{"a Job without a number of completions", job, "", "parallelism: 2,", 2},
		{"a CronJob", cron, "", "completions: 4, parallelism: 3,", 3},
	} {
		restart := ""
		if tt.kind == "" {
			restart = "restartPolicy: Never,"
		}
		obj := workloadOf(t, replaced(tt.text, "KIND", tt.kind, "SPEC", tt.spec, "RESTART", restart))
		if got := manifests.MaxPods(obj); got != tt.want {
			t.Errorf("%s: %d copies, want %d", tt.name, got, tt.want)
		}
		if got := manifests.PodTemplate(obj); got == nil || got.Labels["a"] != "b" {
			t.Errorf("%s: its template is %+v", tt.name, got)
		}
	}
}
