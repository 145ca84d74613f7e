package fields

const c = "spec.containers[]."

// containerRows are the rows of containers without their probes and hooks.
func containerRows() []Row {
	return []Row{
		{
			Name: "workdir", Fields: []string{c + "workingDir"},
			Container: "workingDir: /tmp", Script: "[ $PWD = /tmp ]",
		},
		{
			Name: "pullpolicy", Fields: []string{c + "imagePullPolicy"},
			Container: "{image: \"127.0.0.1:1/none:1\", imagePullPolicy: Never}",
			Check:     when(waits("ErrImageNeverPull"), func(s *Seen) bool { return waits("ErrImagePull")(s) || waits("ImagePullBackOff")(s) }),
		},
		{
			Name: "terminationmessagepath", Fields: []string{c + "terminationMessagePath"},
			Container: "terminationMessagePath: /tmp/message", Script: "echo here > /tmp/message; echo there > /dev/termination-log",
			Check: func(s *Seen) Verdict {
				if s.Ended() == nil {
					return Undecided
				}
				return verdict(s.Ended().Message == "here\n")
			},
		},
	}
}
