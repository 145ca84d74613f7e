package fields

// envRows are about variables that come from the manifest itself.
func envRows() []Row {
	const (
		field    = c + "env[].valueFrom.fieldRef."
		resource = c + "env[].valueFrom.resourceFieldRef."
	)
	return []Row{
		{
			Name: "env", Fields: under(c+"env[].", "name", "value"), Otherwise: map[string]any{c + "env[].name": "OTHER"},
			Container: "env: [{name: A, value: a}]", Script: "[ $A = a ]",
		},
		{
			Name: "fieldref", Fields: under(field, "fieldPath", "apiVersion"),
			Otherwise: map[string]any{field + "fieldPath": "metadata.namespace", field + "apiVersion": "v2"}, Refused: under(field, "apiVersion"),
			Container: "env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]", Script: "[ $A = NAME ]",
		},
		{
			Name: "resourcefieldref", Fields: under(resource, "containerName", "resource", "divisor"),
			Otherwise: map[string]any{resource + "resource": "requests.cpu"},
			Container: "resources: {limits: {cpu: 2}}\n" +
				"env: [{name: A, valueFrom: {resourceFieldRef: {containerName: other, resource: limits.cpu, divisor: 1m}}}]",
			Spec:   "containers: [{name: other, image: IMAGE, command: ['true'], resources: {limits: {cpu: 3}, requests: {cpu: 1}}}]",
			Script: "[ $A = 3000 ]",
		},
	}
}

// objectRows are about variables that come from ConfigMaps and Secrets.
func objectRows() []Row {
	const (
		data = `
apiVersion: v1
kind: ConfigMap
metadata: {name: NAME}
data: {key: right, other: wrong}
---
apiVersion: v1
kind: Secret
metadata: {name: NAME}
stringData: {key: right, other: wrong}
`
		none = "none-of-this-name"
	)
	check := when(succeeded, func(s *Seen) bool { return waits("CreateContainerConfigError")(s) || ByPhase(s) == Fails })
	var rows []Row
	for _, kind := range []string{"configMap", "secret"} {
		name := map[string]string{"configMap": "configmap", "secret": "secret"}[kind]
		key, ref := c+"env[].valueFrom."+kind+"KeyRef.", c+"envFrom[]."+kind+"Ref."
		rows = append(
			rows,
			Row{
				Name: name + "key", Fields: under(key, "name", "key"), Otherwise: map[string]any{key + "name": none, key + "key": "other"},
				Container: "env: [{name: A, valueFrom: {" + kind + "KeyRef: {name: NAME, key: key}}}]",
				Objects:   data, Script: "[ $A = right ]", Check: check,
			},
			Row{
				Name: name + "key-optional", Fields: under(key, "optional"),
				Container: "env: [{name: A, valueFrom: {" + kind + "KeyRef: {name: NAME, key: none, optional: true}}}]",
				Objects:   data, Script: "[ -z \"$A\" ]", Check: check,
			},
			Row{
				Name: name + "ref", Fields: under(ref, "name"), Otherwise: map[string]any{ref + "name": none},
				Container: "envFrom: [{" + kind + "Ref: {name: NAME}}]", Objects: data, Script: "[ $key$other = rightwrong ]", Check: check,
			},
			Row{
				Name: name + "ref-optional", Fields: under(ref, "optional"),
				Container: "envFrom: [{" + kind + "Ref: {name: " + none + ", optional: true}}]", Script: "[ -z \"$key\" ]", Check: check,
			},
		)
	}
	return append(rows, Row{
		Name: "envfrom-prefix", Fields: under(c+"envFrom[].", "prefix"),
		Container: "envFrom: [{prefix: P_, configMapRef: {name: NAME}}, {prefix: P_, secretRef: {name: NAME}}]",
		Objects:   data, Script: "[ $P_key = right ]", Check: check,
	})
}
