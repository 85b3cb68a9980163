module gotexts

go 1.24
