module github.com/trimtab/trimtab/test/zoo/programs/godeep

go 1.26

require github.com/patrikeh/go-deep v0.0.0-20230427173908-a2775168ab3d
