package container_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
	"monopod/manifests/validate/container"
	"monopod/manifests/validate/storage"
	"monopod/manifests/validate/validatetest"
)

// pod validates what belongs to this package, and the volumes that mounts refer to.
func pod(c *check.Checker, spec *field.Path) {
	storage.Volumes(c).Volumes(spec.Child("volumes"))
	container.Containers(c).Containers(spec.Child("containers"))
	container.Containers(c).InitContainers(spec.Child("initContainers"))
	container.Containers(c).EphemeralContainers(spec.Child("ephemeralContainers"))
	container.Resources(c).PodResources(spec.Child("resources"))
	container.Resources(c).ResourceClaims(spec.Child("resourceClaims"))
	container.Security(c).PodSecurity(spec.Child("securityContext"))
}

func TestContainers(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "a good container", Spec: `containers: [{name: a, image: i, ports: [{containerPort: 80}]}]`},
		{
			Name: "no container",
			Spec: `containers: []`,
			Want: []string{
				"spec.containers: Required value",
			},
		},
		{
			Name: "no name",
			Spec: `containers: [{image: i}]`,
			Want: []string{
				"spec.containers[0].name: Required value",
			},
		},
		{
			Name: "a name that is no label",
			Spec: `containers: [{name: Bad_Name, image: i}]`,
			Want: []string{
				`spec.containers[0].name: Invalid value: "Bad_Name": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			},
		},
		{
			Name: "no image",
			Spec: `containers: [{name: a}]`,
			Want: []string{
				"spec.containers[0].image: Required value",
			},
		},
		{
			Name: "an image with a space",
			Spec: `containers: [{name: a, image: " i"}]`,
			Want: []string{
				`spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace`,
			},
		},
		{
			Name: "two of one name",
			Spec: `containers: [{name: a, image: i}, {name: a, image: i}]`,
			Want: []string{
				`spec.containers[1].name: Duplicate value: "a"`,
			},
		},
		{
			Name: "an init container of the same name",
			Spec: `containers: [{name: a, image: i}]
initContainers: [{name: a, image: i}]`,
			Want: []string{
				`spec.initContainers[0].name: Duplicate value: "a"`,
			},
		},
		{
			Name: "an unknown pull policy",
			Spec: `containers: [{name: a, image: i, imagePullPolicy: always}]`,
			Want: []string{
				`spec.containers[0].imagePullPolicy: Unsupported value: "always": supported values: "Always", "IfNotPresent", "Never"`,
			},
		},
		{
			Name: "an unknown termination message policy",
			Spec: `containers: [{name: a, image: i, terminationMessagePolicy: Log}]`,
			Want: []string{
				`spec.containers[0].terminationMessagePolicy: Unsupported value: "Log": supported values: "File", "FallbackToLogsOnError"`,
			},
		},
		{
			Name: "an ephemeral container of the same name, with ports",
			Spec: `containers: [{name: a, image: i}]
ephemeralContainers: [{name: a, image: i, ports: [{containerPort: 80}]}]`,
			Want: []string{
				`spec.ephemeralContainers[0].name: Duplicate value: "a"`,
				"spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container",
			},
		},
		{
			Name: "a lifecycle of a plain init container",
			Spec: `containers: [{name: a, image: i}]
initContainers: [{name: b, image: i, lifecycle: {preStop: {exec: {command: [x]}}}}]`,
			Want: []string{
				"spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
			},
		},
		{
			Name: "probes of a plain init container",
			Spec: `containers: [{name: a, image: i}]
initContainers: [{name: b, image: i, livenessProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}, startupProbe: {tcpSocket: {port: 1}}}]`,
			Want: []string{
				"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
				"spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
				"spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
			},
		},
		{Name: "probes of a sidecar", Spec: `containers: [{name: a, image: i}]
initContainers: [{name: b, image: i, restartPolicy: Always, livenessProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}}]`},
		{
			Name: "a resize policy of a plain init container",
			Spec: `containers: [{name: a, image: i}]
initContainers: [{name: b, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]`,
			Want: []string{
				`spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers`,
			},
		},
	})
}

func TestPorts(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{
			Name: "no number",
			Spec: `containers: [{name: a, image: i, ports: [{name: web}]}]`,
			Want: []string{
				"spec.containers[0].ports[0].containerPort: Required value",
			},
		},
		{
			Name: "a number out of range",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 70000}]}]`,
			Want: []string{
				"spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
			},
		},
		{
			Name: "a host port out of range",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: -1}]}]`,
			Want: []string{
				"spec.containers[0].ports[0].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
			},
		},
		{
			Name: "an unknown protocol",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, protocol: tcp}]}]`,
			Want: []string{
				`spec.containers[0].ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`,
			},
		},
		{
			Name: "a name in capitals",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, name: WEB}]}]`,
			Want: []string{
				`spec.containers[0].ports[0].name: Invalid value: "WEB": must contain at least one letter (a-z)`,
				`spec.containers[0].ports[0].name: Invalid value: "WEB": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			},
		},
		{
			Name: "two of one name",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, name: web}, {containerPort: 2, name: web}]}]`,
			Want: []string{
				`spec.containers[0].ports[1].name: Duplicate value: "web"`,
			},
		},
		{
			Name: "one host port twice",
			Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]}]`,
			Want: []string{
				`spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//80"`,
			},
		},
		{Name: "one host port with two protocols", Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 1, hostPort: 80, protocol: UDP}]}]`},
		{Name: "one host port on two addresses", Spec: `containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80, hostIP: 10.0.0.1}, {containerPort: 2, hostPort: 80, hostIP: 10.0.0.2}]}]`},
	})
}

func TestMounts(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "a good mount", Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m}]}]
volumes: [{name: v, emptyDir: {}}]`},
		{
			Name: "no name",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{mountPath: /m}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts[0].name: Not found: ""`,
				"spec.containers[0].volumeMounts[0].name: Required value",
			},
		},
		{
			Name: "no path",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				"spec.containers[0].volumeMounts[0].mountPath: Required value",
			},
		},
		{
			Name: "no such volume",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: w, mountPath: /m}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts[0].name: Not found: "w"`,
			},
		},
		{
			Name: "one path twice",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m}, {name: v, mountPath: /m}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/m": must be unique`,
			},
		},
		{
			Name: "an absolute subPath",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, subPath: /s}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts.subPath: Invalid value: "/s": must be a relative path`,
			},
		},
		{
			Name: "a subPath that leaves the volume",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, subPath: a/../../b}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts.subPath: Invalid value: "a/../../b": must not contain '..'`,
			},
		},
		{
			Name: "both subPath and subPathExpr",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, subPath: a, subPathExpr: $(B)}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: "$(B)": subPathExpr and subPath are mutually exclusive`,
			},
		},
		{
			Name: "an absolute subPathExpr",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, subPathExpr: /b}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts.subPathExpr: Invalid value: "/b": must be a relative path`,
			},
		},
		{
			Name: "Bidirectional without privileges",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, mountPropagation: Bidirectional}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				"spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
			},
		},
		{Name: "Bidirectional with privileges", Spec: `containers: [{name: a, image: i, securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /m, mountPropagation: Bidirectional}]}]
volumes: [{name: v, emptyDir: {}}]`},
		{
			Name: "an unknown propagation",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, mountPropagation: Shared}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "Shared": supported values: "Bidirectional", "HostToContainer", "None"`,
			},
		},
		{
			Name: "recursiveReadOnly of a writable mount",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, recursiveReadOnly: Enabled}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				"spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
			},
		},
		{
			Name: "recursiveReadOnly with propagation",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				"spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
			},
		},
		{
			Name: "an unknown recursiveReadOnly",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m, readOnly: true, recursiveReadOnly: Maybe}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Maybe": supported values: "Disabled", "Enabled", "IfPossible"`,
			},
		},
		{
			Name: "a device that is no claim",
			Spec: `containers: [{name: a, image: i, volumeDevices: [{name: v, devicePath: /d}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`,
			},
		},
		{
			Name: "a device without name and path",
			Spec: `containers: [{name: a, image: i, volumeDevices: [{}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				"spec.containers[0].volumeDevices[0].devicePath: Required value",
				`spec.containers[0].volumeDevices[0].name: Not found: ""`,
				"spec.containers[0].volumeDevices[0].name: Required value",
			},
		},
		{
			Name: "a device path that leaves its directory",
			Spec: `containers: [{name: a, image: i, volumeDevices: [{name: w, devicePath: /a/../b}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/a/../b": can not contain backsteps ('..')`,
				`spec.containers[0].volumeDevices[0].name: Not found: "w"`,
			},
		},
		{
			Name: "a volume as a mount and as a device",
			Spec: `containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /m}], volumeDevices: [{name: v, devicePath: /m}]}]
volumes: [{name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/m": must not already exist as a path in volumeMounts`,
				`spec.containers[0].volumeDevices[0].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode`,
				`spec.containers[0].volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts`,
				`spec.containers[0].volumeMounts[0].mountPath: Invalid value: "/m": must not already exist as a path in volumeDevices`,
				`spec.containers[0].volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices`,
			},
		},
	})
}

func TestProbes(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "a good probe", Spec: `containers: [{name: a, image: i, livenessProbe: {httpGet: {port: web}}}]`},
		{
			Name: "no handler",
			Spec: `containers: [{name: a, image: i, livenessProbe: {}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe: Required value: must specify a handler type",
			},
		},
		{
			Name: "two handlers",
			Spec: `containers: [{name: a, image: i, readinessProbe: {exec: {command: [x]}, tcpSocket: {port: 1}}}]`,
			Want: []string{
				"spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
			},
		},
		{
			Name: "an empty command",
			Spec: `containers: [{name: a, image: i, startupProbe: {exec: {}}}]`,
			Want: []string{
				"spec.containers[0].startupProbe.exec.command: Required value",
			},
		},
		{
			Name: "a port out of range",
			Spec: `containers: [{name: a, image: i, livenessProbe: {tcpSocket: {port: 70000}}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 70000: must be between 1 and 65535, inclusive",
			},
		},
		{
			Name: "a port name with a capital letter",
			Spec: `containers: [{name: a, image: i, livenessProbe: {tcpSocket: {port: Web}}}]`,
			Want: []string{
				`spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			},
		},
		{
			Name: "a gRPC port out of range",
			Spec: `containers: [{name: a, image: i, livenessProbe: {grpc: {port: 0}}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
			},
		},
		{
			Name: "an unknown mode of gRPC, which would be taken for plain text",
			Spec: `containers: [{name: a, image: i, livenessProbe: {grpc: {port: 1, mode: tls}}}]`,
			Want: []string{
				`spec.containers[0].livenessProbe.grpc.mode: Unsupported value: "tls": supported values: "Plaintext", "TLS"`,
			},
		},
		{
			Name: "HTTP/2 with TLS",
			Spec: `containers: [{name: a, image: i, livenessProbe: {httpGet: {port: 1, scheme: HTTPS, protocol: HTTP2}}}]`,
			Want: []string{
				`spec.containers[0].livenessProbe.httpGet.protocol: Invalid value: "HTTP2": is only supported with HTTP (H2C)`,
			},
		},
		{
			Name: "HTTP/2 to a host",
			Spec: `containers: [{name: a, image: i, livenessProbe: {httpGet: {port: 1, host: h, protocol: HTTP2}}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe.httpGet.host: Invalid value: \"h\": must be empty when `protocol` is \"HTTP2\"",
			},
		},
		{
			Name: "an unknown scheme",
			Spec: `containers: [{name: a, image: i, livenessProbe: {httpGet: {port: 1, scheme: http}}}]`,
			Want: []string{
				`spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "http": supported values: "HTTP", "HTTPS"`,
			},
		},
		{
			Name: "a header that is no name",
			Spec: `containers: [{name: a, image: i, livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: "X Y", value: z}]}}}]`,
			Want: []string{
				`spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "X Y": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')`,
			},
		},
		{
			Name: "negative times",
			Spec: `containers: [{name: a, image: i, readinessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, successThreshold: -1, failureThreshold: -1}}]`,
			Want: []string{
				"spec.containers[0].readinessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
				"spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
				"spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
				"spec.containers[0].readinessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
				"spec.containers[0].readinessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
			},
		},
		{
			Name: "a liveness probe that must succeed twice",
			Spec: `containers: [{name: a, image: i, livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
			},
		},
		{
			Name: "a startup probe that must succeed twice",
			Spec: `containers: [{name: a, image: i, startupProbe: {tcpSocket: {port: 1}, successThreshold: 2}}]`,
			Want: []string{
				"spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1",
			},
		},
		{
			Name: "a readiness probe with a grace period",
			Spec: `containers: [{name: a, image: i, readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 5}}]`,
			Want: []string{
				"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
			},
		},
		{
			Name: "a grace period of 0",
			Spec: `containers: [{name: a, image: i, livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}}]`,
			Want: []string{
				"spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
			},
		},
	})
}

func TestLifecycle(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good hooks", Spec: `containers: [{name: a, image: i, lifecycle: {postStart: {exec: {command: [x]}}, preStop: {sleep: {seconds: 30}}}}]`},
		{
			Name: "no handler",
			Spec: `containers: [{name: a, image: i, lifecycle: {postStart: {}}}]`,
			Want: []string{
				"spec.containers[0].lifecycle.postStart: Required value: must specify a handler type",
			},
		},
		{
			Name: "two handlers",
			Spec: `containers: [{name: a, image: i, lifecycle: {preStop: {exec: {command: [x]}, sleep: {seconds: 1}}}}]`,
			Want: []string{
				"spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type",
			},
		},
		{
			Name: "a sleep longer than the grace period",
			Spec: `containers: [{name: a, image: i, lifecycle: {preStop: {sleep: {seconds: 31}}}}]`,
			Want: []string{
				"spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
			},
		},
		{
			Name: "a negative sleep",
			Spec: `containers: [{name: a, image: i, lifecycle: {preStop: {sleep: {seconds: -1}}}}]`,
			Want: []string{
				"spec.containers[0].lifecycle.preStop.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (30)",
			},
		},
		{
			Name: "a stop signal without an operating system",
			Spec: `containers: [{name: a, image: i, lifecycle: {stopSignal: SIGTERM}}]`,
			Want: []string{
				"spec.containers[0].lifecycle.stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`",
			},
		},
		{Name: "a stop signal", Spec: `os: {name: linux}
containers: [{name: a, image: i, lifecycle: {stopSignal: SIGRTMAX-14}}]`},
	})
}

func TestRestartRules(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good rules", Spec: `containers: [{name: a, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]`},
		{
			Name: "rules without a policy",
			Spec: `containers: [{name: a, image: i, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}]`,
			Want: []string{
				"spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
			},
		},
		{
			Name: "an unknown policy",
			Spec: `containers: [{name: a, image: i, restartPolicy: Sometimes}]`,
			Want: []string{
				`spec.containers[0].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"`,
			},
		},
		{
			Name: "an unknown action",
			Spec: `containers: [{name: a, image: i, restartPolicy: Never, restartPolicyRules: [{action: Stop, exitCodes: {operator: In, values: [1]}}]}]`,
			Want: []string{
				`spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Stop": supported values: "Restart", "RestartAllContainers"`,
			},
		},
		{
			Name: "no exit codes",
			Spec: `containers: [{name: a, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart}]}]`,
			Want: []string{
				"spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
			},
		},
		{
			Name: "an unknown operator",
			Spec: `containers: [{name: a, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: Is, values: [1]}}]}]`,
			Want: []string{
				`spec.containers[0].restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"`,
			},
		},
	})
}

func TestResources(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good resources", Spec: `containers: [{name: a, image: i, resources: {requests: {cpu: 100m, memory: 1Mi}, limits: {cpu: "1", memory: 2Mi, example.com/gpu: "1"}}}]`},
		{
			Name: "an unknown resource",
			Spec: `containers: [{name: a, image: i, resources: {limits: {disk: "1"}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource for containers`,
				`spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource type or fully qualified`,
				`spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource for containers`,
				`spec.containers[0].resources.requests[disk]: Invalid value: "disk": must be a standard resource type or fully qualified`,
			},
		},
		{
			Name: "a standard resource that containers do not have",
			Spec: `containers: [{name: a, image: i, resources: {limits: {pods: "1"}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers`,
				`spec.containers[0].resources.requests[pods]: Invalid value: "pods": must be a standard resource for containers`,
			},
		},
		{
			Name: "a name that is not qualified",
			Spec: `containers: [{name: a, image: i, resources: {limits: {"example.com/a b": "1"}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[example.com/a b]: Invalid value: "example.com/a b": doesn't follow extended resource name standard`,
				`spec.containers[0].resources.limits[example.com/a b]: Invalid value: "example.com/a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`spec.containers[0].resources.requests[example.com/a b]: Invalid value: "example.com/a b": doesn't follow extended resource name standard`,
				`spec.containers[0].resources.requests[example.com/a b]: Invalid value: "example.com/a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		{
			Name: "a negative quantity",
			Spec: `containers: [{name: a, image: i, resources: {limits: {cpu: "-1"}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`,
				`spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0`,
			},
		},
		{
			Name: "a request above its limit",
			Spec: `containers: [{name: a, image: i, resources: {requests: {memory: 2Mi}, limits: {memory: 1Mi}}}]`,
			Want: []string{
				`spec.containers[0].resources.requests: Invalid value: "2Mi": must be less than or equal to memory limit of 1Mi`,
			},
		},
		{
			Name: "a fraction of an extended resource",
			Spec: `containers: [{name: a, image: i, resources: {limits: {example.com/gpu: 500m}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "500m": must be an integer`,
				`spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "500m": must be an integer`,
			},
		},
		{
			Name: "an extended request without limit",
			Spec: `containers: [{name: a, image: i, resources: {requests: {example.com/gpu: "1"}}}]`,
			Want: []string{
				"spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
			},
		},
		{
			Name: "an extended request below its limit",
			Spec: `containers: [{name: a, image: i, resources: {requests: {example.com/gpu: "1"}, limits: {example.com/gpu: "2"}}}]`,
			Want: []string{
				`spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2`,
			},
		},
		{
			Name: "huge pages without cpu and memory",
			Spec: `containers: [{name: a, image: i, resources: {limits: {hugepages-2Mi: 2Mi}}}]`,
			Want: []string{
				"spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
			},
		},
		{
			Name: "half a huge page",
			Spec: `containers: [{name: a, image: i, resources: {limits: {cpu: "1", hugepages-2Mi: 3Mi}}}]`,
			Want: []string{
				`spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`,
				`spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi`,
			},
		},
		{
			Name: "a claim that the pod does not have",
			Spec: `containers: [{name: a, image: i, resources: {claims: [{name: x}]}}]`,
			Want: []string{
				`spec.containers[0].resources.claims[0]: Not found: "x": must be one of the names in pod.spec.resourceClaims which is empty`,
			},
		},
		{
			Name: "a pod with less than its containers",
			Spec: `containers: [{name: a, image: i, resources: {requests: {cpu: "2"}, limits: {cpu: "3"}}}]
resources: {requests: {cpu: "1"}, limits: {cpu: "2"}}`,
			Want: []string{
				`spec.containers[0].resources.limits[cpu]: Invalid value: "3": must be less than or equal to pod limits of 2`,
				`spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`,
			},
		},
		{
			Name: "a pod-level resource that is not supported",
			Spec: `containers: [{name: a, image: i}]
resources: {limits: {ephemeral-storage: 1Gi}}`,
			Want: []string{
				`spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"`,
			},
		},
		{
			Name: "claims of a pod",
			Spec: `containers: [{name: a, image: i}]
resourceClaims: [{name: a}, {name: a, resourceClaimName: x, resourceClaimTemplateName: z}, {resourceClaimName: "X Y"}]`,
			Want: []string{
				"spec.resourceClaims[0]: Invalid value: \"a\": must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
				`spec.resourceClaims[1].name: Duplicate value: "a"`,
				"spec.resourceClaims[1]: Invalid value: \"a\": at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
				"spec.resourceClaims[2].name: Required value",
				`spec.resourceClaims[2].resourceClaimName: Invalid value: "X Y": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "a resize policy twice",
			Spec: `containers: [{name: a, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]}]`,
			Want: []string{
				`spec.containers[0].resizePolicy[1]: Duplicate value: "cpu"`,
			},
		},
		{
			Name: "an unknown resize policy",
			Spec: `containers: [{name: a, image: i, resizePolicy: [{resourceName: disk, restartPolicy: Sometimes}]}]`,
			Want: []string{
				`spec.containers[0].resizePolicy: Unsupported value: "Sometimes": supported values: "NotRequired", "RestartContainer"`,
				`spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"`,
			},
		},
		{
			Name: "a resize that restarts in a pod that never restarts",
			Spec: `restartPolicy: Never
containers: [{name: a, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]`,
			Want: []string{
				"spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'",
			},
		},
	})
}

func TestSecurityContexts(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "a good context", Spec: `containers: [{name: a, image: i, securityContext: {runAsUser: 1, runAsGroup: 1, seccompProfile: {type: RuntimeDefault}, appArmorProfile: {type: Unconfined}}}]`},
		{
			Name: "a negative user and group",
			Spec: `containers: [{name: a, image: i, securityContext: {runAsUser: -1, runAsGroup: -1}}]`,
			Want: []string{
				"spec.containers[0].securityContext.runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
				"spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			},
		},
		{
			Name: "an unmasked /proc without a user namespace",
			Spec: `containers: [{name: a, image: i, securityContext: {procMount: Unmasked}}]`,
			Want: []string{
				"spec.containers[0].securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
			},
		},
		{
			Name: "an unknown procMount",
			Spec: `containers: [{name: a, image: i, securityContext: {procMount: Hidden}}]`,
			Want: []string{
				`spec.containers[0].securityContext.procMount: Unsupported value: "Hidden": supported values: "Default", "Unmasked"`,
			},
		},
		{
			Name: "privileged without privilege escalation",
			Spec: `containers: [{name: a, image: i, securityContext: {privileged: true, allowPrivilegeEscalation: false}}]`,
			Want: []string{
				"spec.containers[0].securityContext: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
			},
		},
		{
			Name: "CAP_SYS_ADMIN without privilege escalation",
			Spec: `containers: [{name: a, image: i, securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}, allowPrivilegeEscalation: false}}]`,
			Want: []string{
				"spec.containers[0].securityContext: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
			},
		},
		{
			Name: "a seccomp profile without type",
			Spec: `containers: [{name: a, image: i, securityContext: {seccompProfile: {localhostProfile: x}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "x": can only be set when seccomp type is Localhost`,
				"spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
			},
		},
		{
			Name: "an unknown seccomp type",
			Spec: `containers: [{name: a, image: i, securityContext: {seccompProfile: {type: Strict}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.seccompProfile.type: Unsupported value: "Strict": supported values: "Localhost", "RuntimeDefault", "Unconfined"`,
			},
		},
		{
			Name: "a seccomp file that is missing",
			Spec: `containers: [{name: a, image: i, securityContext: {seccompProfile: {type: Localhost}}}]`,
			Want: []string{
				"spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
			},
		},
		{
			Name: "a seccomp file of another type",
			Spec: `containers: [{name: a, image: i, securityContext: {seccompProfile: {type: Unconfined, localhostProfile: x}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "x": can only be set when seccomp type is Localhost`,
			},
		},
		{
			Name: "an absolute seccomp file",
			Spec: `containers: [{name: a, image: i, securityContext: {seccompProfile: {type: Localhost, localhostProfile: /x}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "/x": must be a relative path`,
			},
		},
		{
			Name: "an AppArmor profile without type",
			Spec: `containers: [{name: a, image: i, securityContext: {appArmorProfile: {}}}]`,
			Want: []string{
				"spec.containers[0].securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set",
			},
		},
		{
			Name: "an unknown AppArmor type",
			Spec: `containers: [{name: a, image: i, securityContext: {appArmorProfile: {type: Strict}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.appArmorProfile.type: Unsupported value: "Strict": supported values: "Localhost", "RuntimeDefault", "Unconfined"`,
			},
		},
		{
			Name: "an AppArmor profile that is missing",
			Spec: `containers: [{name: a, image: i, securityContext: {appArmorProfile: {type: Localhost}}}]`,
			Want: []string{
				"spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
			},
		},
		{
			Name: "an AppArmor profile of another type",
			Spec: `containers: [{name: a, image: i, securityContext: {appArmorProfile: {type: RuntimeDefault, localhostProfile: x}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: "x": can only be set when AppArmor type is Localhost`,
			},
		},
		{
			Name: "an AppArmor profile with a space",
			Spec: `containers: [{name: a, image: i, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: " x"}}}]`,
			Want: []string{
				`spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: " x": must not be padded with whitespace`,
			},
		},
		{
			Name: "ids of the pod",
			Spec: `containers: [{name: a, image: i}]
securityContext: {runAsUser: -1, runAsGroup: -1, fsGroup: -1, supplementalGroups: [1, -1]}`,
			Want: []string{
				"spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
				"spec.securityContext.runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
				"spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
				"spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			},
		},
		{
			Name: "a shared process namespace with the host's",
			Spec: `containers: [{name: a, image: i}]
hostPID: true
shareProcessNamespace: true`,
			Want: []string{
				"spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
			},
		},
		{
			Name: "unknown policies of the pod",
			Spec: `containers: [{name: a, image: i}]
securityContext: {fsGroupChangePolicy: Never, supplementalGroupsPolicy: Loose, seLinuxChangePolicy: Other}`,
			Want: []string{
				`spec.securityContext.fsGroupChangePolicy: Unsupported value: "Never": supported values: "Always", "OnRootMismatch"`,
				`spec.securityContext.seLinuxChangePolicy: Unsupported value: "Other": supported values: "MountOption", "Recursive"`,
				`spec.securityContext.supplementalGroupsPolicy: Unsupported value: "Loose": supported values: "Merge", "Strict"`,
			},
		},
		{Name: "sysctls", Spec: `containers: [{name: a, image: i}]
securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}, {name: net/ipv4/tcp_syncookies, value: "1"}]}`},
		{
			Name: "a sysctl without name, one twice, and one that is no name",
			Spec: `containers: [{name: a, image: i}]
securityContext: {sysctls: [{value: "1"}, {name: kernel.sem, value: "1"}, {name: kernel.sem, value: "1"}, {name: A.b, value: "1"}]}`,
			Want: []string{
				"spec.securityContext.sysctls[0].name: Required value",
				`spec.securityContext.sysctls[2].name: Duplicate value: "kernel.sem"`,
				`spec.securityContext.sysctls[3].name: Invalid value: "A.b": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`,
			},
		},
		{
			Name: "sysctls of the host's namespaces",
			Spec: `containers: [{name: a, image: i}]
hostNetwork: true
hostIPC: true
securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}, {name: kernel.sem, value: "1"}]}`,
			Want: []string{
				`spec.securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be specified when 'hostNetwork' is true`,
				`spec.securityContext.sysctls[1].name: Invalid value: "kernel.sem": may not be specified when 'hostIPC' is true`,
			},
		},
	})
}
