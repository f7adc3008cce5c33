module github.com/ntbnet/ntbnet/kernel/ntb_cdev
