package policy_test

import (
	"strings"
	"testing"

	"monopod/manifests"
	"monopod/manifests/decode"
	"monopod/manifests/policy"
)

func TestSysctlsOfANode(t *testing.T) {
	const pod = `--- {apiVersion: v1, kind: Pod, metadata: {name: s}, spec: {containers: [{name: c, image: i}], securityContext: {sysctls: [{name: NAME, value: "1"}]}}}`
	for _, tt := range []struct {
		name    string
		allowed []string
		want    string
	}{
		{name: "net.ipv4.tcp_syncookies"},
		{name: "net/ipv4/tcp_syncookies"},
		{name: "kernel.shm_rmid_forced"},
		{name: "net.ipv4.tcp_slow_start_after_idle"},
		{name: "net.ipv4.tcp_notsent_lowat"},
		{name: "kernel.msgmax", want: `SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowlisted; add it to allowedUnsafeSysctls`},
		{name: "kernel.msgmax", allowed: []string{"kernel.msg*"}},
		{name: "kernel/msgmax", allowed: []string{"kernel.msgmax"}},
		{name: "net.core.somaxconn", allowed: []string{"net.core.*"}},
		{name: "net.core.somaxconn", allowed: []string{"net.core.some", "kernel.msg*"}, want: "not allowlisted"},
		{name: "net.core.somaxconn", allowed: []string{"net.core"}, want: "not allowlisted"},
		{name: "vm.swappiness", want: "it applies to the whole machine"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode.Pods("f", []byte(strings.Replace(pod, "NAME", tt.name, 1)), decode.Options{Policy: policy.Policy{AllowedUnsafeSysctls: tt.allowed}})
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error is %v, want %q", err, tt.want)
			case tt.want != "" && manifests.Errors(err)[0].Field != "spec.securityContext.sysctls[0].name":
				t.Errorf("the field is %s", manifests.Errors(err)[0].Field)
			}
		})
	}
}

func TestWhatAKubeletRejectsIsValidWhereAPodIsCreated(t *testing.T) {
	const pod, windows = `kind: Pod, apiVersion: v1, metadata: {name: s}, spec: `, `os: {name: windows}`
	const sysctls, bad = `securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`, `securityContext: {sysctls: [{name: "foo-", value: "1"}]}`
	const job = `kind: Job, apiVersion: batch/v1, metadata: {name: s}, spec: {template: {spec: `
	for _, tt := range []struct{ kind, spec, end, rejected, err string }{
		{kind: pod},
		{kind: pod, spec: sysctls, rejected: "SysctlForbidden"},
		{kind: pod, spec: windows, rejected: "PodOSNotSupported"},
		{kind: pod, spec: `os: {name: plan9}`, err: "plan9"},
		{kind: pod, spec: bad, err: `Invalid value: "foo-"`},
		{kind: job, spec: sysctls, end: `}}`, err: "not allowlisted"},
		{kind: job, spec: windows, end: `}}`, err: "windows"},
	} {
		text := "--- {" + tt.kind + `{restartPolicy: Never, containers: [{name: c, image: i}], ` + tt.spec + "}" + tt.end + "}"
		c, err := decode.All("f", []byte(text), decode.Options{Policy: policy.Policy{Rejects: true}})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err != nil || len(c.Pods) != 1 {
			t.Fatalf("%s: %v", text, err)
		}
		switch r := c.Pods[0].Rejected; {
		case r == nil && tt.rejected != "", r != nil && r.Reason != tt.rejected:
			t.Errorf("%s: %+v", text, r)
		}
		if _, err := decode.All("f", []byte(text), decode.Options{}); (err == nil) != (tt.rejected == "") {
			t.Errorf("%s elsewhere: %v", text, err)
		}
	}
}

func TestCheckUnsafeSysctl(t *testing.T) {
	for pattern, ok := range map[string]bool{
		"net.*": true, "net.core.somaxconn": true, "kernel.shm*": true, "kernel.msgmax": true, "fs.mqueue.*": true, "kernel.sem": true,
		"vm.swappiness": false, "kernel.*": false, "*": false, "": false, "net.*.x": false, "NET.x": false,
	} {
		if err := policy.CheckUnsafeSysctl(pattern); (err == nil) != ok {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

func TestPodSecurityStandards(t *testing.T) {
	const (
		plain      = `{}`
		lowat      = `securityContext: {sysctls: [{name: net.ipv4.tcp_notsent_lowat, value: "16384"}]}`
		host       = `hostNetwork: true`
		restricted = `securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`
		tight      = `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}`
	)
	for _, tt := range []struct {
		name, level, spec, container string
		// want are parts of the messages, in their order.
		want []string
	}{
		{name: "nothing is demanded by default", spec: host, container: `{privileged: true}`},
		{name: "privileged demands nothing", level: "privileged", spec: host, container: `{privileged: true}`},
		{name: "baseline has no host namespaces and privileges", level: "baseline", spec: host, container: `{privileged: true}`, want: []string{
			`violates PodSecurity "baseline:v1.37": host namespaces (hostNetwork=true)`, "privileged (container",
		}},
		{name: "baseline takes a plain pod", level: "baseline", spec: restricted, container: plain},
		{name: "baseline has the safe sysctls of its version", level: "baseline", spec: lowat, container: plain},
		{name: "restricted wants more", level: "restricted", spec: `terminationGracePeriodSeconds: 1`, container: plain, want: []string{
			`violates PodSecurity "restricted:v1.37": allowPrivilegeEscalation != false`, "unrestricted capabilities", "runAsNonRoot != true", "seccompProfile",
		}},
		{name: "restricted is met", level: "restricted", spec: restricted, container: tight},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  " + tt.spec + "\n  containers: [{name: c, image: i, securityContext: " + tt.container + "}]\n"
			_, err := decode.Pods("f", []byte(text), decode.Options{Policy: policy.Policy{PodSecurity: tt.level}})
			errs := manifests.Errors(err)
			if len(errs) != len(tt.want) {
				t.Fatalf("%d problems, want %d: %v", len(errs), len(tt.want), err)
			}
			for i, want := range tt.want {
				if e := errs[i]; !strings.Contains(e.Msg, want) || e.Field != "spec" || e.Line != 4 {
					t.Errorf("problem %d is %v, want %q at spec", i, e, want)
				}
			}
		})
	}
}

// TestThePolicyOfANodeIsThatOfWorkloadsToo: a Deployment is no way around it.
func TestThePolicyOfANodeIsThatOfWorkloadsToo(t *testing.T) {
	const (
		deployment = `--- {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {selector: {matchLabels: {a: b}}, template: TEMPLATE}}`
		set        = `--- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s}, spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: TEMPLATE,` +
			` volumeClaimTemplates: [{metadata: {name: v}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}}`
		cron     = `--- {apiVersion: batch/v1, kind: CronJob, metadata: {name: c}, spec: {schedule: "* * * * *", jobTemplate: {spec: {template: TEMPLATE}}}}`
		template = `{metadata: {labels: {a: b}}, spec: {POLICY containers: [{name: c, image: i, securityContext: SECURITY}], securityContext: {SYSCTLS}}}`
		tight    = `{allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}`
		sysctls  = `sysctls: [{name: net.core.somaxconn, value: "9"}]`
	)
	for _, tt := range []struct {
		name, workload, security, sysctls string
		policy                            policy.Policy
		want                              string
	}{
		{"anything, without a policy", deployment, `{privileged: true}`, "", policy.Policy{}, ""},
		{"a privileged Deployment", deployment, `{privileged: true}`, "", policy.Policy{PodSecurity: "baseline"}, `spec.template.spec: violates PodSecurity "baseline:v1.37": privileged`},
		{"a privileged CronJob", cron, `{privileged: true}`, "", policy.Policy{PodSecurity: "baseline"}, `spec.jobTemplate.spec.template.spec: violates PodSecurity "baseline:v1.37": privileged`},
		{"a restricted Deployment", deployment, tight, "", policy.Policy{PodSecurity: "restricted"}, ""},
		{"a restricted StatefulSet with claims", set, tight, "", policy.Policy{PodSecurity: "restricted"}, ""},
		{"a sysctl that is not allowed", deployment, tight, sysctls, policy.Policy{}, `spec.template.spec.securityContext.sysctls[0].name: SysctlForbidden`},
		{"a sysctl that is allowed", deployment, tight, sysctls, policy.Policy{AllowedUnsafeSysctls: []string{"net.core.*"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := ""
			if tt.workload == cron {
				policy = "restartPolicy: Never,"
			}
			text := strings.Replace(tt.workload, "TEMPLATE", template, 1)
			text = strings.NewReplacer("POLICY", policy, "SECURITY", tt.security, "SYSCTLS", tt.sysctls).Replace(text)
			_, err := decode.All("f", []byte(text), decode.Options{Policy: tt.policy})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCriticalPodsOfANode(t *testing.T) {
	const pod = `--- {apiVersion: v1, kind: Pod, metadata: {name: s, annotations: {monopod.dev/protected: "PROTECTED"}}, spec: {SPEC containers: [{name: c, image: i}]}}`
	for _, tt := range []struct{ protected, spec, field string }{
		{"false", "", ""},
		{"false", "priorityClassName: high,", ""},
		{"false", "priority: 1000000000,", ""},
		{"false", "priorityClassName: system-node-critical,", "spec.priorityClassName"},
		{"false", "priorityClassName: system-cluster-critical,", "spec.priorityClassName"},
		{"false", "priority: 1000000001,", "spec.priority"},
		{"true", "", "metadata.annotations[monopod.dev/protected]"},
	} {
		text := []byte(strings.NewReplacer("PROTECTED", tt.protected, "SPEC", tt.spec).Replace(pod))
		if _, err := decode.Pods("f", text, decode.Options{}); err != nil {
			t.Errorf("%s, where all may be critical: %v", text, err)
		}
		_, err := decode.Pods("f", text, decode.Options{Policy: policy.Policy{RefuseCritical: true}})
		all := manifests.Errors(err)
		if tt.field == "" && err != nil || tt.field != "" && (len(all) != 1 || all[0].Field != tt.field || all[0].Line != 1 || !strings.Contains(all[0].Hint, "criticalPods: true")) {
			t.Errorf("%s: %v", text, err)
		}
	}
	job := []byte(`--- {apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {restartPolicy: Never, priorityClassName: system-node-critical, containers: [{name: c, image: i}]}}}}`)
	if _, err := decode.Pods("f", job, decode.Options{Policy: policy.Policy{RefuseCritical: true}}); err == nil || !strings.Contains(err.Error(), "spec.template.spec.priorityClassName") {
		t.Errorf("a Job: %v", err)
	}
}

// TestDefaultsForAllOfANode: a source that may not be critical raises no pods of other sources, and decides nothing about their claims.
func TestDefaultsForAllOfANode(t *testing.T) {
	for _, tt := range []struct{ text, field string }{
		{`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: 1000000000}`, ""},
		{`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: 1000000000, globalDefault: false}`, ""},
		{`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: 1000000000, globalDefault: true}`, "globalDefault"},
		{`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: c}, value: -1, globalDefault: true}`, "globalDefault"},
		{`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: kubernetes.io/no-provisioner}`, ""},
		{`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: kubernetes.io/no-provisioner}`, "metadata.annotations"},
	} {
		text := []byte("--- " + tt.text)
		if _, err := decode.All("f", text, decode.Options{}); err != nil {
			t.Errorf("%s, where all may be critical: %v", text, err)
		}
		_, err := decode.All("f", text, decode.Options{Policy: policy.Policy{RefuseCritical: true}})
		all := manifests.Errors(err)
		if tt.field == "" && err != nil || tt.field != "" && (len(all) != 1 || all[0].Field != tt.field || all[0].Line != 1 || !strings.Contains(all[0].Hint, "criticalPods: true")) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestMountOptionsOfVolumes: those that reach beyond the volume are for the administrator.
func TestMountOptionsOfVolumes(t *testing.T) {
	const nfs, iscsi = "nfs: {server: s, path: /e}", "iscsi: {targetPortal: s, iqn: 'iqn.2026-01.example:a', lun: 0}"
	for _, tt := range []struct {
		source, options string
		ok              bool
	}{
		{nfs, "nfsvers=4.2, hard", true},
		{nfs, "bind", false},
		{nfs, "'hard,remount'", false},
		{iscsi, "", true},
		{iscsi, "logdev=/dev/sda2", false},
	} {
		text := []byte("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], mountOptions: [" + tt.options + "], " + tt.source + "}\n")
		if _, err := decode.All("f", text, decode.Options{}); err != nil {
			t.Errorf("%s, where all is allowed: %v", text, err)
		}
		_, err := decode.All("f", text, decode.Options{Policy: policy.Policy{PodSecurity: "baseline"}})
		if all := manifests.Errors(err); tt.ok != (err == nil) || err != nil && (len(all) != 1 || all[0].Field != "spec.mountOptions") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
