package storage_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
	"monopod/manifests/validate/storage"
	"monopod/manifests/validate/validatetest"
)

// pod validates the volumes, and the variables of all containers.
func pod(c *check.Checker, spec *field.Path) {
	storage.Volumes(c).Volumes(spec.Child("volumes"))
	for _, container := range c.AllContainers(spec) {
		storage.Variables(c).Env(container.Path.Child("env"), container.Env)
		storage.Variables(c).EnvFrom(container.Path.Child("envFrom"), container.EnvFrom)
	}
}

func TestVolumes(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good volumes", Spec: `volumes: [{name: a, emptyDir: {sizeLimit: 1Mi}}, {name: b, hostPath: {path: /x, type: Directory}}, {name: c, configMap: {name: m}}]`},
		{
			Name: "no name",
			Spec: `volumes: [{emptyDir: {}}]`,
			Want: []string{
				"spec.volumes[0].name: Required value",
			},
		},
		{
			Name: "a name that is no label",
			Spec: `volumes: [{name: Bad_Name, emptyDir: {}}]`,
			Want: []string{
				`spec.volumes[0].name: Invalid value: "Bad_Name": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			},
		},
		{
			Name: "two of one name",
			Spec: `volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]`,
			Want: []string{
				`spec.volumes[1].name: Duplicate value: "v"`,
			},
		},
		{
			Name: "two sources",
			Spec: `volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}]`,
			Want: []string{
				"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
			},
		},
		{
			Name: "a negative size limit",
			Spec: `volumes: [{name: v, emptyDir: {sizeLimit: "-1"}}]`,
			Want: []string{
				"spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
			},
		},
		{
			Name: "a hostPath without path",
			Spec: `volumes: [{name: v, hostPath: {}}]`,
			Want: []string{
				"spec.volumes[0].hostPath.path: Required value",
			},
		},
		{
			Name: "a hostPath that climbs",
			Spec: `volumes: [{name: v, hostPath: {path: /x/../y}}]`,
			Want: []string{
				`spec.volumes[0].hostPath.path: Invalid value: "/x/../y": must not contain '..'`,
			},
		},
		{
			Name: "a hostPath of an unknown type",
			Spec: `volumes: [{name: v, hostPath: {path: /x, type: Folder}}]`,
			Want: []string{
				`spec.volumes[0].hostPath.type: Unsupported value: "Folder": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"`,
			},
		},
		{
			Name: "a Secret without name, and a mode out of range",
			Spec: `volumes: [{name: v, secret: {defaultMode: 512}}]`,
			Want: []string{
				"spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
				"spec.volumes[0].secret.secretName: Required value",
			},
		},
		{
			Name: "items of a ConfigMap",
			Spec: `volumes: [{name: v, configMap: {name: m, items: [{key: k, path: p}, {path: p}, {key: k}, {key: k, path: /p}, {key: k, path: ..p}, {key: k, path: ../p}, {key: k, path: p, mode: -1}]}}]`,
			Want: []string{
				"spec.volumes[0].configMap.items[1].key: Required value",
				"spec.volumes[0].configMap.items[2].path: Required value",
				`spec.volumes[0].configMap.items[3].path: Invalid value: "/p": must be a relative path`,
				`spec.volumes[0].configMap.items[4].path: Invalid value: "..p": must not start with '..'`,
				`spec.volumes[0].configMap.items[5].path: Invalid value: "../p": must not contain '..'`,
				"spec.volumes[0].configMap.items[6].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
			},
		},
		{
			Name: "a claim without name",
			Spec: `volumes: [{name: v, persistentVolumeClaim: {}}]`,
			Want: []string{
				"spec.volumes[0].persistentVolumeClaim.claimName: Required value",
			},
		},
		{
			Name: "a claim that an ephemeral volume creates",
			Spec: `volumes: [{name: v, persistentVolumeClaim: {claimName: p-e}}, {name: e, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`,
			Want: []string{
				`spec.volumes[0].persistentVolumeClaim.claimName: Invalid value: "p-e": must not reference a PVC that gets created for an ephemeral volume`,
			},
		},
		{
			Name: "an image without reference",
			Spec: `volumes: [{name: v, image: {}}]`,
			Want: []string{
				"spec.volumes[0].image.reference: Required value",
			},
		},
		{
			Name: "an image with an unknown pull policy",
			Spec: `volumes: [{name: v, image: {reference: r, pullPolicy: Sometimes}}]`,
			Want: []string{
				`spec.volumes[0].image.pullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`,
			},
		},
		{
			Name: "an NFS source without server, with a relative path",
			Spec: `volumes: [{name: v, nfs: {path: x}}]`,
			Want: []string{
				`spec.volumes[0].nfs.path: Invalid value: "x": must be an absolute path`,
				"spec.volumes[0].nfs.server: Required value",
			},
		},
		{
			Name: "an NFS source without path",
			Spec: `volumes: [{name: v, nfs: {server: s}}]`,
			Want: []string{
				`spec.volumes[0].nfs.path: Invalid value: "": must be an absolute path`,
				"spec.volumes[0].nfs.path: Required value",
			},
		},
		{
			Name: "an iSCSI source without target",
			Spec: `volumes: [{name: v, iscsi: {lun: 256}}]`,
			Want: []string{
				"spec.volumes[0].iscsi.iqn: Required value",
				"spec.volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
				"spec.volumes[0].iscsi.targetPortal: Required value",
			},
		},
		{
			Name: "iSCSI names that are none",
			Spec: `volumes: [{name: v, iscsi: {targetPortal: h, iqn: iqn.x, lun: 0, initiatorName: abc}}]`,
			Want: []string{
				`spec.volumes[0].iscsi.initiatorName: Invalid value: "abc": must be valid format: the name of a target or initiator, such as iqn.2001-04.com.example:disk, or eui. or naa. with 16 hexadecimal digits`,
				`spec.volumes[0].iscsi.iqn: Invalid value: "iqn.x": must be valid format: the name of a target or initiator, such as iqn.2001-04.com.example:disk, or eui. or naa. with 16 hexadecimal digits`,
			},
		},
		{
			Name: "an iSCSI source whose names are patterns and paths",
			Spec: `volumes: [{name: v, iscsi: {targetPortal: "*:3260", portals: [ok, "?"], iqn: "iqn.2001-04.com.example:*", lun: 0, iscsiInterface: ../x}}]`,
			Want: []string{
				`spec.volumes[0].iscsi.iqn: Invalid value: "iqn.2001-04.com.example:*": must be valid format: the name of a target or initiator, such as iqn.2001-04.com.example:disk, or eui. or naa. with 16 hexadecimal digits`,
				`spec.volumes[0].iscsi.iscsiInterface: Invalid value: "../x": must be the name of an interface of iscsiadm: letters, digits, and any of _ . : - after the first character`,
				`spec.volumes[0].iscsi.portals[1]: Invalid value: "?": must be an IP address or host name, with or without a port, such as 192.0.2.7 or 192.0.2.7:3260`,
				`spec.volumes[0].iscsi.targetPortal: Invalid value: "*:3260": must be an IP address or host name, with or without a port, such as 192.0.2.7 or 192.0.2.7:3260`,
			},
		},
		{
			Name: "an NFS server that is an option",
			Spec: `volumes: [{name: v, nfs: {server: -v, path: /x}}]`,
			Want: []string{
				`spec.volumes[0].nfs.server: Invalid value: "-v": must not begin with '-', or contain control characters`,
			},
		},
		{
			Name: "iSCSI with CHAP and no Secret",
			Spec: `volumes: [{name: v, iscsi: {targetPortal: h, iqn: "iqn.2001-04.com.example:disk", lun: 0, chapAuthSession: true}}]`,
			Want: []string{
				"spec.volumes[0].iscsi.secretRef: Required value",
			},
		},
	})
}

func TestEphemeralVolumes(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{
			Name: "no template",
			Spec: `volumes: [{name: v, ephemeral: {}}]`,
			Want: []string{
				"spec.volumes[0].ephemeral.volumeClaimTemplate: Required value",
			},
		},
		{
			Name: "a template with a name",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`,
			Want: []string{
				"spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set",
			},
		},
		{
			Name: "a template without modes and size",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {}}}}]`,
			Want: []string{
				"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Required value: at least 1 access mode is required",
				"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Required value",
			},
		},
		{
			Name: "an unknown access mode",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [Read], resources: {requests: {storage: 1Gi}}}}}}]`,
			Want: []string{
				`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Unsupported value: "Read": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`,
			},
		},
		{
			Name: "ReadWriteOncePod with another mode",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany], resources: {requests: {storage: 1Gi}}}}}}]`,
			Want: []string{
				"spec.volumes[0].ephemeral.volumeClaimTemplate.spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
			},
		},
		{
			Name: "no size",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "0"}}}}}}]`,
			Want: []string{
				`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources[storage]: Invalid value: "0": must be greater than zero`,
			},
		},
		{
			Name: "an unknown volume mode",
			Spec: `volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {volumeMode: File, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]`,
			Want: []string{
				`spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeMode: Unsupported value: "File": supported values: "Block", "Filesystem"`,
			},
		},
	})
}

func TestProjectedVolumes(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good sources", Spec: `volumes: [{name: v, projected: {sources: [{configMap: {name: m}}, {secret: {name: s}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}]`},
		{
			Name: "two sources in one",
			Spec: `volumes: [{name: v, projected: {sources: [{configMap: {name: m}, secret: {name: s}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
			},
		},
		{
			Name: "no names",
			Spec: `volumes: [{name: v, projected: {sources: [{configMap: {}}, {secret: {}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0].configMap.name: Required value",
				"spec.volumes[0].projected.sources[1].secret.name: Required value",
			},
		},
		{
			Name: "one path twice",
			Spec: `volumes: [{name: v, projected: {sources: [{configMap: {name: m, items: [{key: k, path: p}]}}, {secret: {name: s, items: [{key: k, path: p}]}}]}}]`,
			Want: []string{
				`spec.volumes[0].projected: Invalid value: "s": conflicting duplicate paths`,
			},
		},
		{
			Name: "a token without service account",
			Spec: `volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
			},
		},
		{
			Name: "a token that is valid too short",
			Spec: `serviceAccountName: s
volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 60}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes",
			},
		},
		{
			Name: "the file of a token with an impossible owner",
			Spec: `serviceAccountName: robot
volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, user: -1}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0].serviceAccountToken.user: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			},
		},
		{
			Name: "a token that is valid too long",
			Spec: `serviceAccountName: s
volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t, expirationSeconds: 4294967297}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
			},
		},
		{
			Name: "a token without path",
			Spec: `serviceAccountName: s
volumes: [{name: v, projected: {sources: [{serviceAccountToken: {}}]}}]`,
			Want: []string{
				"spec.volumes[0].projected.path: Required value",
			},
		},
	})
}

func TestDownwardAPIVolumes(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good files", Spec: `volumes: [{name: v, downwardAPI: {items: [{path: l, fieldRef: {fieldPath: metadata.labels}}, {path: c, resourceFieldRef: {containerName: a, resource: limits.cpu}}]}}]`},
		{
			Name: "no path and no field",
			Spec: `volumes: [{name: v, downwardAPI: {items: [{}]}}]`,
			Want: []string{
				"spec.volumes[0].downwardAPI.path: Required value",
				"spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
			},
		},
		{
			Name: "both a field and a resource",
			Spec: `volumes: [{name: v, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {containerName: a, resource: limits.cpu}}]}}]`,
			Want: []string{
				`spec.volumes[0].downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously`,
			},
		},
		{
			Name: "a resource of no container",
			Spec: `volumes: [{name: v, downwardAPI: {items: [{path: x, resourceFieldRef: {resource: limits.cpu}}]}}]`,
			Want: []string{
				"spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value",
			},
		},
		{
			Name: "a field that only variables have",
			Spec: `volumes: [{name: v, downwardAPI: {items: [{path: x, fieldRef: {fieldPath: status.podIP}}]}}]`,
			Want: []string{
				`spec.volumes[0].downwardAPI.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"`,
			},
		},
		{
			Name: "a mode and a path out of range",
			Spec: `volumes: [{name: v, downwardAPI: {items: [{path: ../x, mode: 4096, fieldRef: {fieldPath: metadata.name}}]}}]`,
			Want: []string{
				"spec.volumes[0].downwardAPI.mode: Invalid value: 4096: must be a number between 0 and 0777 (octal), both inclusive",
				`spec.volumes[0].downwardAPI.path: Invalid value: "../x": must not contain '..'`,
			},
		},
	})
}

func TestVariables(t *testing.T) {
	validatetest.Run(t, pod, []validatetest.Case{
		{Name: "good variables", Spec: `containers: [{name: a, image: i, env: [{name: A, value: x}, {name: B, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, {name: C, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]`},
		{
			Name: "no name",
			Spec: `containers: [{name: a, image: i, env: [{value: x}]}]`,
			Want: []string{
				"spec.containers[0].env[0].name: Required value",
			},
		},
		{
			Name: "a name with an equals sign",
			Spec: `containers: [{name: a, image: i, env: [{name: A=B}]}]`,
			Want: []string{
				`spec.containers[0].env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='`,
			},
		},
		{
			Name: "no source",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
			},
		},
		{
			Name: "a value and a source",
			Spec: `containers: [{name: a, image: i, env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
			},
		},
		{
			Name: "two sources",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: k}, secretKeyRef: {name: s, key: k}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time`,
			},
		},
		{
			Name: "a key without name",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {configMapKeyRef: {key: k}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.configMapKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		{
			Name: "a name without key",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s}}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom.secretKeyRef.key: Required value",
			},
		},
		{
			Name: "a key that is none",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: "a b"}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.secretKeyRef.key: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
			},
		},
		{
			Name: "no field",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {}}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required value",
			},
		},
		{
			Name: "an unknown field",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.foo}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.foo": error converting fieldPath: field label not supported: spec.foo`,
			},
		},
		{
			Name: "a field that only volumes have",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`,
			},
		},
		{Name: "one label", Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}]}]`},
		{
			Name: "a label that is none",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		{
			Name: "a subscript of a field that is no map",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {fieldPath: "metadata.name['x']"}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['x']": error converting fieldPath: field label does not support subscript: metadata.name['x']`,
			},
		},
		{
			Name: "a field of another version",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2`,
			},
		},
		{
			Name: "no resource",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {}}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Required value",
			},
		},
		{
			Name: "an unknown resource",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.disk}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.disk": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`,
			},
		},
		{
			Name: "a divisor of CPUs",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1Mi}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource`,
			},
		},
		{
			Name: "a divisor of memory",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 2Mi}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource`,
			},
		},
		{
			Name: "a divisor of huge pages",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 3}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.hugepages-2Mi": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource`,
			},
		},
		{
			Name: "a file without volume, path and key",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {}}}]}]`,
			Want: []string{
				"spec.containers[0].env[0].valueFrom.fileKeyRef.key: Required value",
				"spec.containers[0].env[0].valueFrom.fileKeyRef.path: Required value",
				"spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Required value",
			},
		},
		{
			Name: "a file that climbs",
			Spec: `containers: [{name: a, image: i, env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: a/../../b, key: K}}}]}]`,
			Want: []string{
				`spec.containers[0].env[0].valueFrom.fileKeyRef.path: Invalid value: "a/../../b": must not contain '..'`,
			},
		},
		{Name: "all keys of an object", Spec: `containers: [{name: a, image: i, envFrom: [{configMapRef: {name: m}}, {prefix: P_, secretRef: {name: s}}]}]`},
		{
			Name: "no object",
			Spec: `containers: [{name: a, image: i, envFrom: [{prefix: P_}]}]`,
			Want: []string{
				"spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
			},
		},
		{
			Name: "two objects in one",
			Spec: `containers: [{name: a, image: i, envFrom: [{configMapRef: {name: m}, secretRef: {name: s}}]}]`,
			Want: []string{
				`spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time`,
			},
		},
		{
			Name: "objects without name",
			Spec: `containers: [{name: a, image: i, envFrom: [{configMapRef: {}}]}]`,
			Want: []string{
				"spec.containers[0].envFrom[0].configMapRef.name: Required value",
			},
		},
		{
			Name: "a prefix with an equals sign",
			Spec: `containers: [{name: a, image: i, envFrom: [{prefix: "a=", configMapRef: {name: m}}]}]`,
			Want: []string{
				`spec.containers[0].envFrom[0].prefix: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='`,
			},
		},
	})
}
