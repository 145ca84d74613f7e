module monopod/k9s

go 1.26.8

godebug default=go1.26

require github.com/derailed/k9s v0.50.16
