package validate_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate"
	"monopod/manifests/validate/check"
	"monopod/manifests/validate/validatetest"
)

func wholePod(c *check.Checker, _ *field.Path) { c.Add(validate.Pod(c.Pod)...) }

func TestPodFields(t *testing.T) {
	validatetest.Run(t, wholePod, []validatetest.Case{
		{
			Name: "an unknown restart policy",
			Spec: `containers: [{name: a, image: i}]
restartPolicy: Sometimes`,
			Want: []string{
				`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
			},
		},
		{
			Name: "a deadline of 0",
			Spec: `containers: [{name: a, image: i}]
activeDeadlineSeconds: 0`,
			Want: []string{
				"spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
			},
		},
		{
			Name: "a service account that is no name",
			Spec: `containers: [{name: a, image: i}]
serviceAccountName: A_B`,
			Want: []string{
				`spec.serviceAccountName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "a readiness gate that is no name",
			Spec: `containers: [{name: a, image: i}]
readinessGates: [{conditionType: "a b"}]`,
			Want: []string{
				`spec.readinessGates[0].conditionType: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		{
			Name: "a runtime class that is no name",
			Spec: `containers: [{name: a, image: i}]
runtimeClassName: A_B`,
			Want: []string{
				`spec.runtimeClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "no operating system",
			Spec: `containers: [{name: a, image: i}]
os: {name: ""}`,
			Want: []string{
				"spec.os.name: Required value",
			},
		},
		{
			Name: "options for Windows",
			Spec: `containers: [{name: a, image: i}]
os: {name: linux}
securityContext: {windowsOptions: {runAsUserName: x}}`,
			Want: []string{
				"spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux pod",
			},
		},
		{
			Name: "an unknown operating system",
			Spec: `containers: [{name: a, image: i}]
os: {name: plan9}`,
			Want: []string{
				`spec.os: Unsupported value: "plan9": supported values: "linux", "windows"`,
			},
		},
		{
			Name: "a user namespace and namespaces of the host",
			Spec: `containers: [{name: a, image: i}]
hostUsers: false
hostNetwork: true
hostPID: true
hostIPC: true`,
			Want: []string{
				"spec.HostIPC: Forbidden: when `hostUsers` is false",
				"spec.HostPID: Forbidden: when `hostUsers` is false",
				"spec.hostNetwork: Forbidden: when `hostUsers` is false",
			},
		},
		{
			Name: "a variable from a file of no emptyDir",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: f, key: K}}}, {name: B, valueFrom: {fileKeyRef: {volumeName: w, path: f, key: K}}}]}]
volumes: [{name: v, hostPath: {path: /x}}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v": referenced volume must be of type emptyDir`,
				`spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Not found: "w"`,
			},
		},
		{
			Name: "an ephemeral container",
			Spec: `containers: [{name: a, image: i}]
ephemeralContainers: [{name: e, image: i}]`,
			Want: []string{
				"spec.ephemeralContainers: Forbidden: cannot be set on create",
			},
		},
	})
}

func TestNetworkFields(t *testing.T) {
	validatetest.Run(t, wholePod, []validatetest.Case{
		{Name: "good names", Spec: `containers: [{name: a, image: i}]
hostname: h
subdomain: s
hostAliases: [{ip: 10.0.0.1, hostnames: [a.b]}]
dnsPolicy: None
dnsConfig: {nameservers: [10.0.0.1], searches: [a.b], options: [{name: ndots, value: "2"}]}`},
		{
			Name: "a hostname with a dot",
			Spec: `containers: [{name: a, image: i}]
hostname: a.b`,
			Want: []string{
				`spec.hostname: Invalid value: "a.b": must not contain dots`,
			},
		},
		{
			Name: "a subdomain with a dot",
			Spec: `containers: [{name: a, image: i}]
subdomain: a.b`,
			Want: []string{
				`spec.subdomain: Invalid value: "a.b": must not contain dots`,
			},
		},
		{
			Name: "an address with a leading zero",
			Spec: `containers: [{name: a, image: i}]
hostAliases: [{ip: 10.0.0.01, hostnames: [a]}]`,
			Want: []string{
				`spec.hostAliases[0].ip: Invalid value: "10.0.0.01": must not have leading 0s`,
			},
		},
		{
			Name: "a host alias that is no name",
			Spec: `containers: [{name: a, image: i}]
hostAliases: [{ip: 10.0.0.1, hostnames: [a_b]}]`,
			Want: []string{
				`spec.hostAliases[0].hostnames[0]: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "an unknown DNS policy",
			Spec: `containers: [{name: a, image: i}]
dnsPolicy: Custom`,
			Want: []string{
				`spec.dnsPolicy: Unsupported value: "Custom": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`,
			},
		},
		{
			Name: "no nameserver with the policy None",
			Spec: `containers: [{name: a, image: i}]
dnsPolicy: None`,
			Want: []string{
				"spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
			},
		},
		{
			Name: "a nameserver that is no address",
			Spec: `containers: [{name: a, image: i}]
dnsConfig: {nameservers: [a.b]}`,
			Want: []string{
				`spec.dnsConfig.nameservers[0]: Invalid value: "a.b": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			},
		},
		{
			Name: "a search domain that is no name",
			Spec: `containers: [{name: a, image: i}]
dnsConfig: {searches: ["a b"]}`,
			Want: []string{
				`spec.dnsConfig.searches[0]: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "an option without name",
			Spec: `containers: [{name: a, image: i}]
dnsConfig: {options: [{value: x}]}`,
			Want: []string{
				"spec.dnsConfig.options[0]: Required value: must not be empty",
			},
		},
		{
			Name: "a host port of a pod in the host network",
			Spec: `hostNetwork: true
containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 81}]}]`,
			Want: []string{
				"spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true",
			},
		},
	})
}

func TestSchedulingFields(t *testing.T) {
	validatetest.Run(t, wholePod, []validatetest.Case{
		{Name: "good scheduling", Spec: `containers: [{name: a, image: i}]
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [b]}]}}]}}`},
		{
			Name: "a label that is none",
			Spec: `containers: [{name: a, image: i}]
nodeSelector: {"a b": "c d"}`,
			Want: []string{
				`spec.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`spec.nodeSelector: Invalid value: "c d": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			},
		},
		{
			Name: "a node name that is none",
			Spec: `containers: [{name: a, image: i}]
nodeName: A_B`,
			Want: []string{
				`spec.nodeName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "a priority class that is no name",
			Spec: `containers: [{name: a, image: i}]
priorityClassName: A_B`,
			Want: []string{
				`spec.priorityClassName: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "an unknown preemption policy",
			Spec: `containers: [{name: a, image: i}]
preemptionPolicy: Sometimes`,
			Want: []string{
				`spec.preemptionPolicy: Unsupported value: "Sometimes": supported values: "PreemptLowerPriority", "Never"`,
			},
		},
		{
			Name: "a toleration without key",
			Spec: `containers: [{name: a, image: i}]
tolerations: [{operator: Equal}]`,
			Want: []string{
				"spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
			},
		},
		{
			Name: "a toleration of a value that must exist",
			Spec: `containers: [{name: a, image: i}]
tolerations: [{key: a, operator: Exists, value: b}]`,
			Want: []string{
				"spec.tolerations[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
			},
		},
		{
			Name: "an unknown operator and effect of a toleration",
			Spec: `containers: [{name: a, image: i}]
tolerations: [{key: a, operator: Is, effect: Kill}]`,
			Want: []string{
				`spec.tolerations[0].effect: Unsupported value: "Kill": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
				`spec.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"`,
			},
		},
		{
			Name: "seconds of a toleration that evicts nothing",
			Spec: `containers: [{name: a, image: i}]
tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}]`,
			Want: []string{
				"spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
			},
		},
		{
			Name: "node terms: none",
			Spec: `containers: [{name: a, image: i}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}`,
			Want: []string{
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
			},
		},
		{
			Name: "node terms: operators",
			Spec: `containers: [{name: a, image: i}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In}, {key: a, operator: Exists, values: [b]}, {key: a, operator: Gt}, {key: a, operator: Is}]}]}}}`,
			Want: []string{
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
				`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].operator: Invalid value: "Is": not a valid selector operator`,
			},
		},
		{
			Name: "node terms: fields",
			Spec: `containers: [{name: a, image: i}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [A_B]}, {key: spec, operator: In}, {key: metadata.name, operator: Exists}]}]}}}`,
			Want: []string{
				`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[0]: Invalid value: "A_B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].key: Invalid value: "spec": not a valid field selector key`,
				"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
				`spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[2].operator: Invalid value: "Exists": not a valid selector operator`,
			},
		},
		{
			Name: "a weight out of range",
			Spec: `containers: [{name: a, image: i}]
affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]}}`,
			Want: []string{
				"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
			},
		},
		{
			Name: "pod terms",
			Spec: `containers: [{name: a, image: i}]
affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{}, {topologyKey: a, matchLabelKeys: [b]}, {topologyKey: a, labelSelector: {matchLabels: {b: c}}, matchLabelKeys: [d], mismatchLabelKeys: [d]}]}}`,
			Want: []string{
				`spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty`,
				`spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
				"spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
				`spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[2].matchLabelKeys[0]: Invalid value: "d": exists in both matchLabelKeys and mismatchLabelKeys`,
			},
		},
		{
			Name: "a weight of a pod term",
			Spec: `containers: [{name: a, image: i}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: a, namespaces: [A_B]}}]}}`,
			Want: []string{
				`spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.namespace: Invalid value: "A_B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
				"spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
			},
		},
		{
			Name: "spread constraints",
			Spec: `containers: [{name: a, image: i}]
topologySpreadConstraints: [{maxSkew: 0, whenUnsatisfiable: Maybe}, {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: 1}, {maxSkew: 1, topologyKey: b, whenUnsatisfiable: DoNotSchedule, minDomains: 0, nodeTaintsPolicy: Maybe}]`,
			Want: []string{
				"spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
				"spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
				`spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Maybe": supported values: "DoNotSchedule", "ScheduleAnyway"`,
				"spec.topologySpreadConstraints[1].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
				"spec.topologySpreadConstraints[2].minDomains: Invalid value: 0: must be greater than zero",
				`spec.topologySpreadConstraints[2].nodeTaintsPolicy: Unsupported value: "Maybe": supported values: "Honor", "Ignore"`,
			},
		},
		{
			Name: "one spread constraint twice",
			Spec: `containers: [{name: a, image: i}]
topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]`,
			Want: []string{
				`spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{a, DoNotSchedule}"`,
			},
		},
		{
			Name: "scheduling gates",
			Spec: `containers: [{name: a, image: i}]
nodeName: m1
schedulingGates: [{name: a}, {name: a}, {name: "a b"}]`,
			Want: []string{
				"spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
				`spec.schedulingGates[1]: Duplicate value: "a"`,
				`spec.schedulingGates[2]: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
	})
}
